"""SQLite: connections, migrations, backup and repair.

The functions take a connection and never commit; `Database.write` does.
"""
