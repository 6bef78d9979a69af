"""What must never be stored or injected: private tags, secrets, external text, injection attempts."""
