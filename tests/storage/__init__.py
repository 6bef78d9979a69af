"""The database: migrations, upgrades, search, deletion."""
