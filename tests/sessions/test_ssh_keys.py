"""Keys of people over ssh: which are taken, whose they are, and the list that sshd reads."""

import base64
import struct
from collections.abc import Iterator

import pytest
from stores import new_store

from appliance.errors import BadInput, Conflict, NotFound, Refused
from appliance.policy.audit_log import Ledger
from appliance.runtime.events import Events
from appliance.runtime.paths import Home
from appliance.sessions.logins import LoginsEnded
from appliance.sessions.people import People
from appliance.sessions.ssh_keys import SshKeys, parse_key


def public(kind: str, *fields: bytes, said: str = "") -> str:
    """The line of a .pub file."""
    raw = b"".join(struct.pack(">I", len(one)) + one for one in ((said or kind).encode(), *fields))
    return f"{kind} {base64.b64encode(raw).decode()}"


ANN, BOB = public("ssh-ed25519", b"a" * 32), public("ssh-ed25519", b"b" * 32)


@pytest.fixture
def ended() -> list[tuple[str, ...]]:
    """Logins that were ended."""
    return []


@pytest.fixture
def keys(home: Home, ended: list[tuple[str, ...]]) -> Iterator[SshKeys]:
    store, events = new_store(home.database), Events()
    events.subscribe(LoginsEnded, lambda event: ended.append(event.ids))
    yield SshKeys(store, People(store), Ledger(store), events, home.ssh_keys)
    store.close()


def test_a_key_is_its_persons_until_it_is_removed(keys: SshKeys, home: Home, ended: list[tuple[str, ...]]) -> None:
    ann = keys.add_key("ann", f"{ANN} ann@laptop\n")
    keys.add_key("bob", BOB)
    assert keys.find_person(ANN) == ("ann", ann.fingerprint)
    assert [(one.person, one.comment) for one in keys.list_keys()] == [("ann", "ann@laptop"), ("bob", "")]
    lines = home.ssh_keys.read_text().splitlines()[1:]
    assert lines == [f"restrict,pty {ANN} {ann.fingerprint}", f"restrict,pty {BOB} {keys.list_keys('bob')[0].fingerprint}"]
    assert home.ssh_keys.stat().st_mode & 0o077 == 0
    assert keys.remove_key(ann.fingerprint[:16]) == ann and ended == [(ann.fingerprint,)]
    assert ANN not in home.ssh_keys.read_text() and BOB in home.ssh_keys.read_text()
    with pytest.raises(Refused, match="is nobody's"):
        keys.find_person(ANN)


def test_a_key_has_one_person_and_may_be_given_again(keys: SshKeys) -> None:
    assert keys.add_key("ann", ANN).fingerprint == keys.add_key("ann", f"{ANN} new@desk").fingerprint
    assert [one.comment for one in keys.list_keys()] == ["new@desk"]
    with pytest.raises(Conflict, match="is linked to ann"):
        keys.add_key("bob", ANN)
    with pytest.raises(NotFound, match="2 keys begin with SHA256:"):
        keys.add_key("bob", BOB)
        keys.remove_key("SHA256:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 lines"),
        (f"{ANN}\n{BOB}", "2 lines"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n", "private key"),
        (f'command="sh" {ANN}', "not a kind of key"),
        (f"no-pty,{ANN}", "not a kind of key"),
        (public("ssh-dss", b"x"), "not a kind of key"),
        (public("ssh-ed25519-cert-v01@openssh.com", b"x"), "not a kind of key"),
        ("ssh-ed25519 !!!!", "damaged"),
        (f"{ANN[:-8]}", "damaged"),
        (public("ssh-ed25519", b"a" * 32, said="ssh-rsa"), "not of the kind"),
        (public("ssh-rsa", b"\1\0\1", b"\xff" * 128), "1024 bits is too short"),
    ],
)
def test_what_is_no_key_that_is_let_in_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as error:
        parse_key(text)
    assert error.value.hint


def test_a_comment_cannot_add_a_line_to_the_list(keys: SshKeys, home: Home) -> None:
    keys.add_key("ann", f"{ANN} laptop\x1b[2J\tssh-rsa AAAA")
    assert keys.list_keys()[0].comment == "laptop[2Jssh-rsa AAAA"
    assert len(home.ssh_keys.read_text().splitlines()) == 2
