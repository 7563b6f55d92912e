"""Generated models: mutated ones that must not break mtool, and random valid ones that must be right."""
