"""What a message asks for, told by sentences of four languages and examples: before a model that is too small to see it."""
