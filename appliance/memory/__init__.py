"""Memory: what is remembered of a person or group, one record each: their form, what is taken from conversations, merging."""
