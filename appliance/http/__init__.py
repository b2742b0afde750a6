"""The HTTP server: the web page, the calls of programs, webhooks. A process of its own, or a socket of this machine alone."""
