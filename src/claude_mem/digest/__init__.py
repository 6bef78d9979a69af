"""Turn to observations and summary: evidence, the writer, refinement by a model."""
