"""The only place that puts parts together and keeps them running."""
