"""Language models: the broker process with pools and remote models, and the core's client of it."""
