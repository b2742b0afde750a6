"""What all commands share: the connection to the core, the terminal, and tools called by name."""
