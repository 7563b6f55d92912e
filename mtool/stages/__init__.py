"""The stages between a model file and a running device, as functions that commands, verification and tuning share."""
