"""The HTTP server, a process of its own: the web page, logins, and what else is asked by HTTP. `server` says how to add a route."""
