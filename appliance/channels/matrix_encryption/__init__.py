"""End-to-end encryption of Matrix: the keys of our device, those of others, and what rooms and files are encrypted with."""
