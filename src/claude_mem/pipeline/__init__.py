"""What happens to an event, one step a module."""
