"""What a session is shown, and the record that it was shown."""
