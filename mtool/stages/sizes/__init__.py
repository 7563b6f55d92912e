"""A firmware's memory before it is built: estimates at the upper end, from measured tables."""
