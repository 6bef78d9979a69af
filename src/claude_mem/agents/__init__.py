"""One module per agent: its payloads and transcripts in, its replies out, our lines in its settings."""
