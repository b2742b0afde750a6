"""The Matrix protocol: a homeserver over HTTP, and end-to-end encryption for one device."""
