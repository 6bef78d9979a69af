"""Question to hits: documents, embeddings, ranking."""
