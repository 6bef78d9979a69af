"""The worker, its routes, MCP and the command line."""
