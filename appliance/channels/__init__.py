"""Channels for people and programs: accepting messages, delivering answers; methods of the local socket in `rpc`."""
