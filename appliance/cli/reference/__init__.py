"""What is written from the command line itself: reference pages."""
