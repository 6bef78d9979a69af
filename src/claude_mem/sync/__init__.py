"""Exchange memory between a person's machines, or within a team, through logs that each device writes alone."""
