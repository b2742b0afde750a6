"""Skills: reading and judging SKILL.md, arguments of slash commands, trust, review, installation, the list in the prompt."""
