"""What a model is sent: the packet, its budget, compaction, roles, and copies for people to look at."""
