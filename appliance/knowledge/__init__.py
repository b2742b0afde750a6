"""What the owl knows: entries, the verbs on them, their history, and the index and search over them."""
