"""Deleting by scope, tombstones, and redaction of rows that are stored already."""
