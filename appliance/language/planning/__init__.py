"""What is done about a message before a tiny or small model: plans, those of effects, and what refers to them."""
