"""What a model is good for on this device: its speed and calls, and everyday requests put to it in a home of its own."""
