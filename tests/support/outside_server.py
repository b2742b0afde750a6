"""What is looked up elsewhere, on loopback: forecasts, places, feeds, rates, Home Assistant, as their documentation says."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "a-long-lived-token"
RATES = """<?xml version="1.0" encoding="UTF-8"?>
<gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01"
xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref">
<gesmes:subject>Reference rates</gesmes:subject><gesmes:Sender><gesmes:name>European Central Bank</gesmes:name></gesmes:Sender>
<Cube><Cube time='2026-11-27'><Cube currency='USD' rate='1.0560'/>
<Cube currency='JPY' rate='158.44'/><Cube currency='GBP' rate='0.8322'/>
</Cube></Cube></gesmes:Envelope>"""
RSS = """<?xml version="1.0" encoding="UTF-8"?><rss version="2.0"><channel><title>Village</title>
<item><title>Bridge &lt;b&gt;reopens&lt;/b&gt; after repairs</title>
<link>https://village.example/1</link><pubDate>Sat, 28 Nov 2026 08:30:00 GMT</pubDate></item>
<item><title><![CDATA[Choir looks for <i>tenors</i>]]></title><pubDate>Fri, 27 Nov 2026 10:00:00 +0100</pubDate></item>
</channel></rss>"""
ATOM = """<?xml version="1.0" encoding="utf-8"?><feed xmlns="http://www.w3.org/2005/Atom"><title>World</title><updated>2026-11-28T12:00:00Z</updated>
<entry><title>Comet seen over Oslo</title><id>urn:1</id><updated>2026-11-28T12:00:00Z</updated></entry>
<entry><title type="html">Strike at the &amp;lt;ferries&amp;gt; ends</title>
<id>urn:2</id><updated>2026-11-26T12:00:00Z</updated></entry></feed>"""
STATES = [
    {
        "entity_id": "light.kitchen",
        "state": "on",
        "attributes": {"friendly_name": "Kitchen Light"},
        "last_changed": "2026-11-28T08:00:00Z",
    },
    {"entity_id": "lock.front_door", "state": "locked", "attributes": {"friendly_name": "Front Door"}},
    {"entity_id": "sensor.x", "state": "1", "attributes": {}},
]
SAID = {
    "turn off the kitchen light": ("action_done", "Turned off the light", ""),
    "is the front door locked": ("query_answer", "Locked", ""),
    "how warm is it in the living room": ("query_answer", "The temperature is 21 °C", ""),
}


def forecast(days: int = 16) -> dict[str, Any]:
    """A forecast: today is dry, tomorrow it rains."""
    dates = [f"{date.today() + timedelta(days=n)}" for n in range(days)]
    daily: dict[str, Any] = {"time": dates}
    daily |= {"weather_code": [1, 63, *[3] * (days - 2)], "precipitation_sum": [0.0, 6.4, *[0.0] * (days - 2)]}
    daily |= {"temperature_2m_min": [2.1] * days, "temperature_2m_max": [8.4] * days}
    daily |= {"precipitation_probability_max": [3, 85, *[5] * (days - 3), None]}
    return {"latitude": 52.5, "longitude": 13.4, "utc_offset_seconds": 3600, "timezone": "Europe/Berlin", "daily": daily}


@dataclass
class Outside:
    """The server: `pages` are answers by path, as bytes or as a status; `asked` is what came, with headers and body."""

    url: str = ""
    pages: dict[str, bytes | int | str] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def paths(self) -> list[str]:
        return [path for path, _, _ in self.asked]

    def put_all(self) -> None:
        """The recorded answers."""
        self.asked.clear()
        places = {"results": [{"id": 2950159, "name": "Berlin", "latitude": 52.52437, "longitude": 13.41053, "country_code": "DE"}]}
        self.pages = {
            "/forecast": json.dumps(forecast()).encode(),
            "/search": json.dumps(places).encode(),
            "/rates.xml": RATES.encode(),
            "/village.xml": RSS.encode(),
            "/world.xml": ATOM.encode(),
            "/api/states": json.dumps(STATES).encode(),
            "/api/template": json.dumps(["Living Room", "Kitchen"]).encode(),
        }


def home_answer(text: str) -> bytes:
    """What its conversation API says to a sentence."""
    sorry = ("error", "Sorry, I couldn't understand that", "no_intent_match")
    kind, speech, code = SAID.get(text.casefold().strip(" ?.!"), sorry)
    data: dict[str, Any] = {"code": code} if code else {"targets": [], "success": [], "failed": []}
    plain = {"plain": {"speech": speech, "extra_data": None}}
    response = {"response_type": kind, "language": "en", "data": data, "speech": plain, "card": {}}
    return json.dumps({"continue_conversation": False, "response": response, "conversation_id": "01J"}).encode()


@contextmanager
def outside() -> Iterator[Outside]:
    """The server for as long as the block lasts."""
    made = Outside()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            path = self.path.partition("?")[0]
            made.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            found: bytes | int | str = made.pages.get(path, 404)
            if path.startswith("/api/") and self.headers.get("authorization") != f"Bearer {TOKEN}":
                found = 401
            elif path == "/api/conversation/process" and found == 404:
                found = home_answer(json.loads(body)["text"])
            self.send_response(found if isinstance(found, int) else 302 if isinstance(found, str) else 200)
            data = found if isinstance(found, bytes) else b""
            if isinstance(found, str):
                self.send_header("Location", found)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    made.put_all()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
