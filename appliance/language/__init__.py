"""What a sentence of a person means, and what is done about it; a language is one file of `languages/`."""
