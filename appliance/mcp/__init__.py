"""The Model Context Protocol: servers of tools behind the bridge, and the core as a server."""
