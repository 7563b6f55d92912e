"""Tests of a project of a user's own: pytest's plugin, with the model, the device, the figures and their limits."""
