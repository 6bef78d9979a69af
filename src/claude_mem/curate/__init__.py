"""What a person asks for: saving, deleting, erasing, redacting and writing records again."""
