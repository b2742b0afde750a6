"""Channels that reach people elsewhere: one file each, whose name is that of its table `[channels.NAME]`.

A file has a function `connect`. Its positional parameters are the keys of the table, checked as the arguments of a tool
are; one named `settings` is the whole table, of a channel whose keys stand in `runtime.settings`. Its keyword-only ones are
what the core hands it by name: `secret` looks up a value of the vault, `data_folder` is where the tools of a session find
files, `home` is the home. It returns a `channels.contract.Connection`. A new file is found by itself, and nothing of it is
imported unless its table says `enabled = true`.
"""
