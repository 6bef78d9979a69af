"""Agents whose real program cannot be run in tests; written from their documentation."""
