"""One run: the loop, its tools and their dispatch, approvals, what ends it."""
