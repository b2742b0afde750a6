"""Watching an installation: figures, health, logs of a run."""
