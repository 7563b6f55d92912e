"""What a firmware takes of a board before it is built: estimates at the upper end, from measured tables."""
