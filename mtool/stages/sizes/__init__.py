"""The memory that a firmware takes before it is built: estimates at the upper end, from measured tables."""
