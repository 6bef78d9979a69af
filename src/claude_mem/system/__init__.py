"""Files, processes and repositories of this machine: everything between the pure rules and the operating system."""
