"""The Model Context Protocol: servers of tools behind the bridge, and the owl as a server."""
