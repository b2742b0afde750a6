"""The full screen in a terminal: panels, the chat, the app. Holds nothing but text not yet accepted.

A client like any other: it holds nothing but what was typed and not yet accepted, and asks the core over
its socket (`link`, `sender`, in worker threads). Every panel is one file and stands in one tuple in `app`.
"""
