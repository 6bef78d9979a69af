"""Spaces: the logs of a person's machines or of a team, and the items of the memory they are about."""
