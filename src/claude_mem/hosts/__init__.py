"""One module a host: its payload in, its reply out, our lines in its settings."""
