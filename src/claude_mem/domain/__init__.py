"""Frozen records and pure rules. Imports nothing else of claude-mem."""
