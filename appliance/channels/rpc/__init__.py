"""Methods of the local socket, one file per subject."""
