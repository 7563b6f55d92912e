"""What `make model-zoo` is made of: the trial of one model, the results that are kept, the page."""
