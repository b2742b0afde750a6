"""What a sentence of a person means: times, requests, kinds of questions; a language is one file of `languages/`."""
