"""What may be done: policy file and rules, mounts, blocked commands, taint and grants, the audit log."""
