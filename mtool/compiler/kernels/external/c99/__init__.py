"""The call of a backend's C, which is portable as far as that is."""
