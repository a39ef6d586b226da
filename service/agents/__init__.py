"""The MCP server: tools with which agents list, describe, analyse and query traces, over the HTTP API."""
