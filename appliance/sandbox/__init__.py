"""Where commands run: bubblewrap, seccomp, landlock, limits, the workspace of a conversation."""
