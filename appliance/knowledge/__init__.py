"""What is stored for answering: entries, the verbs on them, their history, and the index and search over them."""
