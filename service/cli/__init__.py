"""The command line, and the client that it shares with scripts."""
