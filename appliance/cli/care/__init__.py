"""Commands for who looks after an installation: updates, metrics, logs, exports."""
