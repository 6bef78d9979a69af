"""Everything that is stored. All SQL is in here."""
