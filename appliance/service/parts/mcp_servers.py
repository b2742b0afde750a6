"""The parts about servers of tools, built for one core and tied together.

`service.core` makes it once, hands `hub` to tools as their service `mcp`, shows it the toolbox, and ends it. Nothing is started
here: the first call does that. Knows nothing about the protocol.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from appliance.agent.toolbox import Toolbox
from appliance.errors import OwlError
from appliance.mcp import hub, tools
from appliance.mcp.bridge_client import Ferry
from appliance.mcp.hub import Embed, Hub, HubParts
from appliance.mcp.offers import Offers
from appliance.mcp.tools import Stall
from appliance.records import to_plain
from appliance.runtime.methods import Call, method
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.secrets.vault_client import Strongbox
from appliance.store.database import Store
from appliance.web.fetch import Note


class Harbor:
    """Servers of tools as one core has them."""

    def __init__(
        self,
        home: Home,
        environ: Mapping[str, str],
        runtime: Path,
        settings: Callable[[], Config],
        store: Store,
        strongbox: Strongbox,
        embed: Embed,
        note: Note,
    ) -> None:
        self._settings = settings
        ferry = Ferry(runtime / f"bridge-{os.getpid()}.sock", environ, home.logs / "bridge", lambda: settings().tools.mcp_idle_s)
        self.hub = Hub(HubParts(home, environ, Offers(store), ferry, strongbox, note), settings, embed)
        self._stall: Stall | None = None

    def show(self, toolbox: Toolbox) -> None:
        """Offer the tools of servers beside ours, from now on as they change."""
        self._stall = Stall(self.hub, toolbox, lambda: self._settings().tools.mcp_direct)
        self._stall.show()

    def reload(self) -> None:
        """Take a changed configuration into use."""
        if self._stall is not None:
            self._stall.show()

    def close(self) -> None:
        """End every server; safe at any time, also twice."""
        self.hub.close()

    @method("mcp.exec", access="own", is_long=True)
    def execute(self, server: hub.Name, tool: str, arguments: dict[str, Any] | None = None, *, call: Call) -> dict[str, Any]:
        """What a tool of a server answers, whole."""
        try:
            reply = self.hub.call(server, tool, arguments or {}, cancel=call.cancel)
        except OwlError as error:
            if error.outcome not in hub.KINDS:
                raise
            return dict(to_plain(tools.failed(error, server, tool)))
        return {**to_plain(tools.outcome(reply)), "images": [to_plain(image) for image in reply.images]}
