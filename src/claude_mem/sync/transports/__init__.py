"""What carries the sealed logs of a space: a folder, a git remote or the server."""
