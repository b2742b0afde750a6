"""The core as a running service: builds and wires every part, serves it and maintains it."""
