"""When: what words say about moments, spans and recurrences, and the rules made of them."""
