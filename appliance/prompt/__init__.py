"""What a model is sent: the packet (its blocks and their order), its budget, compaction, roles, and copies for people."""
