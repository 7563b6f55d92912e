"""Dense layers for Helium."""
