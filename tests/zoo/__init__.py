"""The parts of `make model-zoo`: the trial of one model, the stored results, the page."""
