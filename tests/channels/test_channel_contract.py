"""What every channel promises, asked of each file in `connectors` without its servers; a new channel adds a line to `TABLES`.

What needs a server - repeats, restarts, bursts, strangers - is in the channel's own file, `test_NAME.py`.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from process import ROOT, until
from stores import new_store

from appliance.channels import connectors
from appliance.channels.connections import ConfigError, Connections, Runner, connect
from appliance.channels.contract import Connection, Received, Running
from appliance.channels.delivery import FINAL, UNCERTAIN, Courier
from appliance.channels.gateway import Admission, Gateway
from appliance.clock import CancelToken
from appliance.errors import Busy, OwlError, Unavailable
from appliance.records import Outbound
from appliance.runtime.events import Events
from appliance.runtime.paths import Home
from appliance.runtime.settings import Channels, Connector, Email, Keys, Matrix, Slack
from appliance.sessions.outbox import Outbox

# The table of each channel, with servers at which nobody listens, and a notification that it could send.
MAILED = {"mail": {"address": "ann@example.org"}}
TABLES: dict[str, tuple[Keys, dict[str, Any]]] = {
    "email": (
        Email(
            imap_host="127.0.0.1", imap_port=1, smtp_host="127.0.0.1", smtp_port=1, user="owl@example.org", password="p", tls=False
        ),
        MAILED,
    ),
    "matrix": (Matrix(homeserver="http://127.0.0.1:1", user="@owl:x", token="t"), {"matrix": {"room": "!r:x"}}),
    "webhook": (Connector(keys={"url": "http://127.0.0.1:1/hook", "key": "k" * 16}), {}),
}
TABLES["slack"] = (Slack(bot_token="b", app_token="a", api_url="http://127.0.0.1:1/api"), {"slack": {"channel": "C1"}})
LISTENING = {"webhook"}  # those that wait for others, and post to one URL whomever it is for
FILES = sorted(path.stem for path in Path(connectors.__file__ or "").parent.glob("*.py") if not path.stem.startswith("_"))


def make(name: str) -> Connection:
    return connect(name, TABLES[name][0], {"secret": str, "home": None, "data_folder": Path, "inbox": None})


class Deaf:
    """An intake that nobody reaches."""

    def take(self, received: Received) -> bool:
        raise AssertionError("nothing can come")

    def refuse(self, sender: str, why: str) -> None:
        raise AssertionError("nothing can come")

    def is_welcome(self, sender: str) -> bool:
        return False

    def last_taken_ms(self) -> int:
        return 0


def test_every_channel_is_in_the_table() -> None:
    assert sorted(TABLES) == FILES


@pytest.mark.covers("A-286", "S-129")
def test_the_page_says_what_there_is_not_and_it_is_not_there() -> None:
    page = (ROOT / "docs/channels.md").read_text(encoding="utf-8")
    for name in ("WhatsApp", "Telegram", "Discord", "voice", "telephones", "households", "graphics card"):
        assert name in page.partition("## What there is not")[2].partition("\n## ")[0]
        assert name.casefold() not in FILES


@pytest.mark.covers("A-183")
@pytest.mark.parametrize("name", FILES)
def test_a_channel_without_its_server_says_so_and_can_be_closed(name: str) -> None:
    made = make(name)
    assert isinstance(made, Connection) and all(isinstance(line, str) for line in made.warnings())
    steps = (made.check, lambda: made.receive(Running(Deaf(), CancelToken(), lambda: pytest.fail("it is not connected"))))
    for step in steps[:1] if name in LISTENING else steps:
        with pytest.raises((OwlError, OSError)):
            step()
    made.typing({}, True)
    made.typing(TABLES[name][1], True)
    made.typing(TABLES[name][1], False)
    made.close()


@pytest.mark.covers("S-120", "S-107")
@pytest.mark.parametrize("name", FILES)
def test_a_send_says_whether_it_may_have_arrived(name: str) -> None:
    made = make(name)
    with pytest.raises(Unavailable) as error:
        made.deliver(Outbound(f"{name}:ann", "hello", metadata=TABLES[name][1], key="k"))
    assert not isinstance(error.value, UNCERTAIN) or made.is_idempotent
    if name not in LISTENING:
        with pytest.raises(FINAL):
            made.deliver(Outbound("local:ann", "hello", key="k"))  # nothing says where to
        made.deliver(Outbound(f"{name}:ann", "  ", metadata=TABLES[name][1], key="k"))  # nothing to say, nothing sent
    made.close()


def test_nothing_of_a_channel_is_imported_while_it_is_off() -> None:
    program = "import sys, appliance.service.core; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    strange = {"imapclient", "smtplib", "imaplib", "nio", "aiohttp", "slack_sdk", "markdown_it"} & loaded
    assert strange == set() and not [one for one in loaded if one.startswith("appliance.channels.connectors.")]


def test_what_is_not_installed_is_named_with_the_command_that_installs_it() -> None:
    program = (
        "import sys; sys.modules['imapclient'] = None\n"
        "from appliance.channels.connections import connect; from appliance.runtime.settings import Email\n"
        "try: connect('email', Email(), {})\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "the package imapclient is not installed" in done.stdout
    assert f"{sys.executable} -m pip install 'owlbox[mail]'" in done.stdout
    with pytest.raises(ConfigError, match="this version has no such channel"):
        connect("pigeon", Email(), {})


class Broken(Connection):
    """Fails in a way that nobody thought of, the first two times."""

    def __init__(self) -> None:
        self.tries = 0

    def receive(self, running: Running) -> None:
        self.tries += 1
        if self.tries < 3:
            raise ZeroDivisionError("a defect")
        super().receive(running)

    def deliver(self, message: Outbound) -> None:
        """Taken."""


@pytest.mark.covers("A-015", "E-291")
def test_a_defect_of_one_channel_touches_no_other_and_it_runs_again(home: Home) -> None:
    store = new_store(home.database)
    courier = Courier(Outbox(store, "core"))
    broken, sound = Broken(), Broken()
    sound.tries = 10
    runners = [Runner(name, one, Gateway(name, Admission(), None), courier, 0.05) for name, one in (("a", broken), ("b", sound))]
    for one in runners:
        one.start()
    until(lambda: runners[0].state().state == "connected" and runners[1].state().state == "connected", "both run", 10)
    assert broken.tries == 3 and runners[1].state().restarts == 0 and courier.channels() == ("a", "b")
    assert courier.live_channels() == {"a", "b"}
    with pytest.raises(Busy):
        runners[0].gateway.take(Received("1", "x", "hi", 1))
    for one in runners:
        one.close()
    assert courier.channels() == () and courier.live_channels() == frozenset()
    store.close()


def test_a_changed_table_begins_anew_and_one_that_is_switched_off_ends(home: Home) -> None:
    store = new_store(home.database)
    tables = {"now": Channels(email=Email(enabled=True, imap_host="127.0.0.1", imap_port=1, password="p", user="u"))}
    services = {"secret": str, "data_folder": Path}
    made = Connections(Courier(Outbox(store, "core")), Events(), lambda: tables["now"], services)
    assert made.channel_states()["email"] is True  # on, and nobody serves it
    made.start()
    until(lambda: made.channel_states()["email"] not in ("connecting", True), "it was tried", 10)
    assert "cannot be reached" in str(made.channel_states()["email"]) and made.channel_states()["matrix"] is False
    tables["now"] = Channels()
    made.apply()
    assert made.channel_states()["email"] is False
    made.close()
    store.close()
