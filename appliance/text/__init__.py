"""Pure functions over texts: patterns, edits, diffs, references, formats of tool calls. No files, no database."""
