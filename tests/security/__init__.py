"""The port, private text, secrets, hostile files and texts."""
