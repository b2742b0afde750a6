"""The tabs beside the chat: lists, entries, help. What they share is in `list_panel` and in `panel` of the folder above."""
