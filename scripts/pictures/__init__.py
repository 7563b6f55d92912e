"""The figures of the documentation."""
