"""What a person moves to another machine: projects, sessions, observations, summaries, search."""
