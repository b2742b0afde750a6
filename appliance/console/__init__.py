"""What all commands share: the connection to the core, commands made from definitions, the terminal."""
