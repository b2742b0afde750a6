"""The owl: its poses, and the two places of the screen in which it shows what goes on."""
