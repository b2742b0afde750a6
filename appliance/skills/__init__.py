"""Skills: reading and judging SKILL.md, arguments of slash commands, review, and writing them."""
