"""The commands about what is stored: entries, drives, documents, memory, skills, and what was done to them."""
