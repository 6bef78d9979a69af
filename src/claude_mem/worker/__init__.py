"""The background process, and the only place that wires the parts together."""
