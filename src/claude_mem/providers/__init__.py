"""The outside world: whatever can make memories out of a turn."""
