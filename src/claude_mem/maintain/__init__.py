"""Backups, integrity checks, retention, disk space, the audit log."""
