"""Dense layers for cores that have nothing but a multiplier of integers."""
