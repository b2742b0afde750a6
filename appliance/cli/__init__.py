"""The `owlbox` command: one file per command."""
