"""Builders of a core, one file per capability: each takes the parts below it and returns its own, whole."""
