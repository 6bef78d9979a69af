"""Memory: projects, sessions, observations, summaries, and the index to search them."""
