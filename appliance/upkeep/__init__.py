"""What looks after a home: backups, restoring, exports, updates, checks (`checks/`) and repair, the lock that one process holds."""
