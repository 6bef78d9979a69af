"""Export, import, and import from the TypeScript claude-mem."""
