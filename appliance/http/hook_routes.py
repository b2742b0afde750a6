"""Webhooks that come in by HTTP: read, bounded, and handed to the core, which judges their signature."""

from collections.abc import Callable
from typing import Any

from appliance.errors import BadInput
from appliance.http.message import Request, Response
from appliance.http.server import route

MAX_BODY_BYTES = 64 * 1024
HEADERS = {"message_id": "x-owlbox-id", "timestamp": "x-owlbox-timestamp", "signature": "x-owlbox-signature"}
PATH = "/hooks/"


class HookRoutes:
    """The route of webhooks, whatever way there is to the core."""

    def __init__(self, call: Callable[[Request, str, dict[str, Any]], Any]) -> None:
        self._call = call

    @route("POST", PATH, access="open", max_body=MAX_BODY_BYTES)
    def receive(self, request: Request) -> Response:
        """A message of the source that the path names."""
        given = {name: request.header(header) for name, header in HEADERS.items()}
        missing = [HEADERS[name] for name, value in given.items() if not value]
        source = request.path.removeprefix(PATH)
        if missing or not source or "/" in source:
            raise BadInput(f"not a signed webhook: {', '.join(missing) or 'no source'} is missing", hint="docs/guides/programs.md")
        try:
            body = request.body.decode()
        except UnicodeDecodeError:
            raise BadInput("the body is no text", hint="send JSON in UTF-8") from None
        self._call(request, "webhook.receive", {**given, "source": source, "body": body})
        return Response.of_json({"is_taken": True}, 202)
