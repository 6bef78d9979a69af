"""claude-mem: what one session of a coding agent did, the next one knows."""

__version__ = "0.1.0"
