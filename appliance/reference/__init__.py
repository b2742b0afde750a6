"""What is written from the definitions: the reference pages, completion of three shells, the man page."""
