"""Keys and passwords: encryption, the vault, the core's way to it."""
