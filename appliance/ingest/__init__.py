"""How files become entries: watching a folder, reading documents, adding, notes and skills."""
