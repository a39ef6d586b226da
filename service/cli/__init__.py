"""The command line, and the HTTP client, which scripts can use as well."""
