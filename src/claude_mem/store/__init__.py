"""All SQL lives here: plain functions of a connection, by table. None of them commits; `Database.write` does."""
