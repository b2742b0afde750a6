"""1,000 messages of ten people at once, through each channel, at its real server: none lost, none answered twice, people fair.

    python tests/bench/bench_burst.py [--only mail,Matrix,Slack] [--messages N] [--json FILE]

A core of its own for each channel, with a scripted model. First ten people send a tenth each as fast as the server takes them; then
one sends as many alone, and somebody else a single one behind the first hundred. Counted are answers at the server, and in the
database what was stored, in whose order, and what was marked as a possible repeat. Fails where a message is lost, answered twice or
out of the order of its sender. Needs Dovecot for mail and `make servers` for Matrix.
"""

import argparse
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import channel_rig
import figures
from homeserver import python, synapse
from mail_servers import dovecot, mail, receiver
from needs import lack
from process import until
from slack_server import workspace

from appliance.clock import monotonic_s, sleep_s
from appliance.runtime.paths import Home
from appliance.store.database import Store

PEOPLE = 10
LIMIT_S = 900.0
FLOODER, OTHER = PEOPLE, PEOPLE + 1  # of those who write in the second part


class Service(Protocol):
    """A server and the people who write there, by number."""

    environ: dict[str, str]

    def send(self, person: int, text: str) -> None: ...

    def answers(self, person: int | None = None) -> int:
        """How many stand there, for one person or for all."""
        ...


class Mail:
    """A mailbox and a receiver."""

    def __init__(self, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="owlmail-", dir="/tmp")))
        folder.chmod(0o755)
        self._server, self._sink = stack.enter_context(dovecot(folder / "d")), stack.enter_context(receiver())
        given = {"imap_host": "127.0.0.1", "imap_port": self._server.port, "smtp_host": "127.0.0.1", "smtp_port": self._sink.port}
        given |= {"user": "owl", "password": "secret", "from_address": "owl@example.org", "tls": False}
        self.environ = channel_rig.settings("channels.email", {"enabled": True, "policy": "open", **given})

    def send(self, person: int, text: str) -> None:
        self._server.put(mail(text, sender=self._address(person), Subject=""))

    def answers(self, person: int | None = None) -> int:
        return sum(person is None or one.recipients == [self._address(person)] for one in list(self._sink.mails))

    def _address(self, person: int) -> str:
        return f"person{person}@example.org"


class Matrix:
    """A room with the assistant for each."""

    def __init__(self, stack: ExitStack) -> None:
        self._server = stack.enter_context(synapse(Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))))
        owl = self._server.someone("owl")
        self._owl = owl.user
        self._people = [self._server.someone(f"person{number}") for number in range(PEOPLE + 2)]
        self._rooms = [one.room(owl.user) for one in self._people]
        given = {"homeserver": self._server.url, "user": owl.user, "token": owl.token, "policy": "open"}
        self.environ = channel_rig.settings("channels.matrix", {"enabled": True, **given})

    def prepare(self) -> None:
        """Until the assistant is in every room."""
        for one, room in zip(self._people, self._rooms, strict=True):
            path = f"rooms/{room}/joined_members"
            until(lambda one=one, path=path: self._owl in one.call("GET", path)["joined"], "it has joined", 60)  # type: ignore[misc]

    def send(self, person: int, text: str) -> None:
        self._people[person].say(self._rooms[person], text)

    def answers(self, person: int | None = None) -> int:
        return sum(self._count(number) for number in range(PEOPLE + 2) if person in (None, number))

    def _count(self, person: int) -> int:
        one, room, found, start = self._people[person], self._rooms[person], 0, ""
        while True:
            page = one.call("GET", f"rooms/{room}/messages?dir=b&limit=500{f'&from={start}' if start else ''}")
            found += sum(event["sender"] == self._owl and event["type"] == "m.room.message" for event in page["chunk"])
            start = page.get("end", "")
            if not page["chunk"] or not start:
                return found


class Slack:
    """A workspace; each person writes in a direct message."""

    def __init__(self, stack: ExitStack) -> None:
        self._space = stack.enter_context(workspace())
        given = {"api_url": self._space.url, "bot_token": "xoxb", "app_token": "xapp", "policy": "open"}
        self.environ = channel_rig.settings("channels.slack", {"enabled": True, **given})

    def send(self, person: int, text: str) -> None:
        self._space.event(text, user=f"U{person}", channel=f"D{person}X", channel_type="im")

    def answers(self, person: int | None = None) -> int:
        return sum(person is None or one["channel"] == f"D{person}X" for one in self._space.posts())


SERVICES: dict[str, Callable[[ExitStack], Service]] = {"mail": Mail, "Matrix": Matrix, "Slack": Slack}


@contextmanager
def measured_mb(pid: int) -> Iterator[dict[str, float]]:
    """The memory of a process: `before`, and by how much it was `more` at the most."""
    found = {"before": _memory_mb(pid)}
    most, over = [found["before"]], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            most.append(_memory_mb(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        found["more"] = round(max(most) - found["before"], 1)


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def measure(name: str, messages: int) -> dict[str, Any]:
    """What became of both parts at one channel."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp")))
        service = SERVICES[name](stack)
        child = stack.enter_context(channel_rig.serving(folder, service.environ))
        if isinstance(service, Matrix):
            service.prepare()
        service.send(0, "hello")
        until(lambda: service.answers() == 1, "it is connected", 60)
        with measured_mb(child.pid) as memory:
            began_s = monotonic_s()
            with ThreadPoolExecutor(PEOPLE) as pool:
                list(
                    pool.map(
                        lambda person: [service.send(person, f"{person} {n}") for n in range(messages // PEOPLE)], range(PEOPLE)
                    )
                )
            sent_s = monotonic_s() - began_s
            until(lambda: service.answers() >= messages + 1, "all are answered", LIMIT_S)
            answered_s = monotonic_s() - began_s
            sleep_s(3)
        answers = service.answers() - 1
        found = {"sent_s": round(sent_s, 1), "answered_s": round(answered_s, 1), "answers": answers, "more_mb": memory["more"]}
        found |= check(folder, messages)
        over = threading.Event()

        def flood() -> None:
            for number in range(messages):
                if not over.is_set():
                    service.send(FLOODER, f"flood {number}")

        thread = threading.Thread(target=flood)
        thread.start()
        until(lambda: service.answers(FLOODER) >= 100, "the first hundred are answered", LIMIT_S)
        began_s = monotonic_s()
        service.send(OTHER, "and I?")
        until(lambda: service.answers(OTHER) == 1, "somebody else is answered", LIMIT_S)
        found["other_s"] = round(monotonic_s() - began_s, 1)
        over.set()
        thread.join()
    return found


def check(folder: Path, messages: int) -> dict[str, Any]:
    """What the database says; AssertionError when something is lost, twice or out of order."""
    store = Store.open(Home(folder / "home").database)
    try:
        rows = store.rows("SELECT content FROM events WHERE kind = 'message' AND role = 'user' ORDER BY id")
        said = [str(row[0]).split() for row in rows if row[0] != "hello"]
        assert len(said) == messages, f"{len(said)} messages were stored"
        for person in range(PEOPLE):
            own = [int(number) for who, number in said if int(who) == person]
            assert own == list(range(messages // PEOPLE)), f"person {person}: {own}"
        repeats = int(store.value("SELECT COUNT(*) FROM outbox WHERE may_repeat") or 0)
        failed = store.rows("SELECT status, COUNT(*) FROM outbox WHERE status <> 'sent' GROUP BY status")
        assert failed == [], failed
        return {"repeats": repeats}
    finally:
        store.close()


def main() -> None:
    here = [name for name, why in (("mail", lack("dovecot")), ("Matrix", "" if python() else "-"), ("Slack", "")) if not why]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(here), metavar="CHANNEL,CHANNEL")
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--json", default="", metavar="FILE")
    args = parser.parse_args()
    found = {name: measure(name, args.messages) for name in args.only.split(",")}
    print(f"{'':<8}{'sent, s':>10}{'answered, s':>13}{'answers':>9}{'repeats':>9}{'MB more':>9}{'another, s':>12}")
    for name, one in found.items():
        counts = f"{one['answers']:>9}{one['repeats']:>9}{one['more_mb']:>9}{one['other_s']:>12}"
        print(f"{name:<8}{one['sent_s']:>10}{one['answered_s']:>13}{counts}")
        assert one["answers"] == args.messages, name
    figures.write(args.json, found)


if __name__ == "__main__":
    main()
