"""Tests of a user's own project: a pytest plugin, with the model, the device, the figures and their limits."""
