"""The vault as files: what is kept, what a changed byte, a wrong key or a kill does to it, and what is never on disk."""

import json
import os
import signal
import stat
import sys
import threading
from pathlib import Path

import pytest
import quick
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.clock import now_ms
from appliance.errors import BadInput, NotFound, OwlError, Refused, Unavailable
from appliance.secrets import encryption, vault
from appliance.secrets.vault import SOON_MS, VALUES, Kind, Vault

DAY_MS = 24 * 3600 * 1000
CREDENTIAL = bytes(range(32))
QUICK = 1000  # iterations where the derivation itself is not what is tested


class Now:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = now_ms()

    def __call__(self) -> int:
        return self.ms


def opened(folder: Path, now: Now | None = None, credential: bytes = b"") -> Vault:
    return Vault(folder / "vault", now=now or Now(), credential=credential, iterations=QUICK)


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "vault" / VALUES).read_text().splitlines()]


# -- keeping ------------------------------------------------------------------------------------------


@pytest.mark.covers("A-194", "A-197")
def test_a_value_comes_back_after_a_restart_and_is_in_no_file(tmp_path: Path) -> None:
    box = opened(tmp_path)
    assert box.set("llm/openai", "sk-one-12345678") and box.set("channel/mail", "päss wörd\nline 2")
    again = opened(tmp_path)
    assert (again.get("llm/openai"), again.get("channel/mail")) == ("sk-one-12345678", "päss wörd\nline 2")
    again.close()
    on_disk = b"".join(path.read_bytes() for path in (tmp_path / "vault").iterdir())
    assert b"sk-one" not in on_disk and "wörd".encode() not in on_disk and b"w\\u00f6rd" not in on_disk
    assert stat.S_IMODE((tmp_path / "vault").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "vault").iterdir()} == {0o600}


@pytest.mark.covers("A-197")
def test_a_folder_open_to_others_is_closed_and_a_foreign_one_refused(tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir(mode=0o755)
    opened(tmp_path).set("llm/x", "abcdefgh")
    assert stat.S_IMODE((tmp_path / "vault").stat().st_mode) == 0o700
    if os.geteuid() == 0:
        os.chown(tmp_path / "vault", 65534, 65534)
        with pytest.raises(Refused, match="another user"):
            opened(tmp_path).set("llm/y", "abcdefgh")


def test_nothing_is_made_before_the_first_secret(tmp_path: Path) -> None:
    box = opened(tmp_path)
    assert box.listing() == [] and box.values() == [] and not box.is_locked and not box.has("llm/x") and box.purge() == []
    with pytest.raises(NotFound, match="no secret llm/x"):
        box.get("llm/x")
    box.close()
    assert list(tmp_path.iterdir()) == []


def test_the_same_value_again_writes_nothing(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.set("llm/x", "abcdefgh")
    before = (tmp_path / "vault" / VALUES).stat()
    assert not box.set("llm/x", "abcdefgh")
    assert (tmp_path / "vault" / VALUES).stat() == before
    assert box.set("llm/x", "other-value") and box.get("llm/x") == "other-value"


def test_a_text_of_the_configuration_is_itself_or_the_secret_it_names(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.set("llm/x", "abcdefgh")
    assert (box.resolve("plain"), box.resolve(""), box.resolve("secret:llm/x")) == ("plain", "", "abcdefgh")
    with pytest.raises(NotFound, match="did you mean llm/x"):
        box.resolve("secret:llm/y")


@pytest.mark.covers("A-201")
@pytest.mark.parametrize(
    "name", ["", "openai", "llm/", "/x", "llm/../x", "llm/a/b", "LLM/x", "llm/a b", "other/x", "llm/" + "a" * 65]
)
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="cannot name a secret"):
        opened(tmp_path).set(name, "abcdefgh")
    assert not (tmp_path / "vault").exists()


@pytest.mark.covers("A-201")
@pytest.mark.parametrize("value", ["", "  \n", "a" * 65_537, "\ud800"])
def test_a_value_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(BadInput):
        opened(tmp_path).set("llm/x", value)


# -- dates and counts ---------------------------------------------------------------------------------


@pytest.mark.covers("A-198")
def test_a_listing_has_no_values_and_counts_what_was_read(tmp_path: Path) -> None:
    now = Now()
    box = opened(tmp_path, now)
    box.set("llm/b", "value-of-b")
    box.set("llm/a", "value-of-a")
    now.ms += 5
    assert box.get("llm/b") == box.get("llm/b")
    first, second = box.listing()
    assert (first.name, first.uses, first.used_ms) == ("llm/a", 0, 0)
    assert (second.name, second.uses, second.used_ms) == ("llm/b", 2, now.ms)
    assert "value-of" not in repr(box.listing()) + json.dumps(box.status())
    box.close()
    assert opened(tmp_path, now).listing() == [first, second]


@pytest.mark.covers("A-198")
def test_counting_writes_once_an_hour_at_most(tmp_path: Path) -> None:
    now = Now()
    box = opened(tmp_path, now)
    box.set("llm/x", "abcdefgh")
    uses, writes = tmp_path / "vault/uses", []
    for _ in range(50):
        now.ms += 6 * 60_000  # five hours in all
        box.get("llm/x")
        writes.append(uses.stat().st_mtime_ns if uses.exists() else 0)
    assert len(set(writes)) - 1 in (4, 5) and box.listing()[0].uses == 50
    assert len(lines(tmp_path)) == 2


@pytest.mark.covers("A-199", "E-320")
def test_an_expired_secret_is_refused_until_it_is_purged(tmp_path: Path) -> None:
    now = Now()
    box = opened(tmp_path, now)
    box.set("llm/short", "abcdefgh", now.ms + 1000)
    box.set("llm/long", "abcdefgh", now.ms + 30 * DAY_MS)
    assert box.get("llm/short") == "abcdefgh" and box.purge() == []
    now.ms += 1000
    with pytest.raises(Refused, match="secret llm/short expired at 20") as caught:
        box.get("llm/short")
    assert caught.value.status == 403 and caught.value.outcome == "permission"
    assert [s.name for s in box.listing() if s.is_expired] == ["llm/short"] and box.status()["expired"] == 1
    assert box.purge() == ["llm/short"] and [s.name for s in opened(tmp_path, now).listing()] == ["llm/long"]
    assert len(lines(tmp_path)) == 2


@pytest.mark.covers("A-199")
@pytest.mark.parametrize(("left_ms", "is_expiring"), [(1, True), (SOON_MS, True), (SOON_MS + 1, False)])
def test_expiring_means_within_seven_days(tmp_path: Path, left_ms: int, is_expiring: bool) -> None:
    now = Now()
    box = opened(tmp_path, now)
    box.set("llm/x", "abcdefgh", now.ms + left_ms)
    box.set("llm/never", "abcdefgh")
    assert [s.is_expiring for s in box.listing()] == [False, is_expiring]
    assert box.status()["expiring"] == int(is_expiring) and box.status()["expired"] == 0


def test_an_end_can_be_moved_and_must_lie_ahead_of_a_new_value(tmp_path: Path) -> None:
    now = Now()
    box = opened(tmp_path, now)
    with pytest.raises(BadInput, match="has passed"):
        box.set("llm/x", "abcdefgh", now.ms)
    box.set("llm/x", "abcdefgh")
    box.expire("llm/x", now.ms)
    with pytest.raises(Refused):
        box.get("llm/x")
    box.expire("llm/x", None)
    assert box.get("llm/x") == "abcdefgh"


@pytest.mark.covers("A-197")
@pytest.mark.parametrize("by_ms", [3 * DAY_MS, -3 * DAY_MS, 20_000 * DAY_MS])
def test_an_end_that_was_counted_moves_with_a_clock_that_is_set_and_a_date_stays(tmp_path: Path, by_ms: int) -> None:
    now, up = Now(), Now()
    box = Vault(tmp_path / "vault", now=now, up=up, iterations=QUICK)
    up.ms = 60_000
    date_ms = now.ms + DAY_MS
    box.set("llm/date", "abcdefgh", date_ms)
    box.set("llm/counted", "abcdefgh", lasts_ms=DAY_MS)
    box.set("llm/later", "abcdefgh")
    assert box.expire("llm/later", None, DAY_MS) == date_ms
    now.ms, up.ms = now.ms + by_ms + 1000, up.ms + 1000
    again = Vault(tmp_path / "vault", now=now, up=up, iterations=QUICK)
    ends = {secret.name: secret.expires_ms for secret in again.listing()}
    assert ends == {"llm/date": date_ms, "llm/counted": date_ms + by_ms, "llm/later": date_ms + by_ms}
    assert lines(tmp_path)[2]["expires_ms"] == date_ms + by_ms, "it is on disk before the machine starts again"
    assert again.get("llm/counted") == again.get("llm/later") == "abcdefgh"
    now.ms, up.ms = now.ms + DAY_MS, up.ms + DAY_MS
    with pytest.raises(Refused, match="expired"):
        again.get("llm/counted")


def test_ends_follow_the_clock_while_the_vault_is_locked(tmp_path: Path) -> None:
    now, up = Now(), Now()
    box = Vault(tmp_path / "vault", now=now, up=up, iterations=QUICK)
    box.set("llm/x", "abcdefgh", lasts_ms=DAY_MS)
    box.rotate("passphrase", "correct horse")
    before = lines(tmp_path)
    now.ms += 3 * DAY_MS
    locked = Vault(tmp_path / "vault", now=now, up=up, iterations=QUICK)
    for _ in range(2):
        [secret] = locked.listing()
        assert secret.expires_ms == now.ms + DAY_MS and not secret.is_expired and lines(tmp_path) == before
    locked.unlock("correct horse")
    assert locked.get("llm/x") == "abcdefgh" and lines(tmp_path)[1]["expires_ms"] == now.ms + DAY_MS


def test_an_end_is_a_date_or_counted(tmp_path: Path) -> None:
    box = opened(tmp_path)
    for end in ({"expires_ms": now_ms() + DAY_MS, "lasts_ms": 1}, {"lasts_ms": -1}):
        with pytest.raises(BadInput, match="at a time or after a while"):
            box.set("llm/x", "abcdefgh", **end)


# -- damage -------------------------------------------------------------------------------------------


@pytest.mark.covers("A-196", "E-320")
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_one_changed_bit_never_gives_another_value(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("bits")
    box = opened(folder)
    wanted = {"llm/a": "value-of-a", "llm/b": "value-of-b", "llm/c": "value-of-c"}
    for name, value in wanted.items():
        box.set(name, value)
    path = folder / "vault" / VALUES
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    is_head = at <= whole.index(b"\n")  # before the change, which may make a line's end of a letter
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    bad = []
    for name, value in wanted.items():
        try:
            assert opened(folder).get(name) == value
        except OwlError:
            bad.append(name)
    assert is_head or len(bad) <= 2  # two where the change joins lines, or gives one the name of another


@pytest.mark.covers("A-196", "E-320")
def test_every_changed_byte_of_a_ciphertext_is_noticed_and_costs_that_secret_alone(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.set("llm/a", "value-of-a")
    box.set("llm/b", "value-of-b")
    path, good = tmp_path / "vault" / VALUES, lines(tmp_path)
    sealed = encryption.base64.b64decode(str(good[1]["sealed"]))
    for at in range(len(sealed)):
        changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        bad = [good[0], {**good[1], "sealed": encryption.base64.b64encode(changed).decode()}, good[2]]
        path.write_text("".join(json.dumps(line) + "\n" for line in bad))
        again = opened(tmp_path)
        with pytest.raises(OwlError, match="secret llm/a cannot be read: ciphertext was changed") as caught:
            again.get("llm/a")
        assert caught.value.outcome == "damaged" and again.get("llm/b") == "value-of-b"


@pytest.mark.covers("A-196")
@pytest.mark.parametrize("size", [0, 1, 11, 12, 27])
def test_a_ciphertext_shorter_than_its_nonce_is_too_short(tmp_path: Path, size: int) -> None:
    opened(tmp_path).set("llm/a", "value-of-a")
    head, line = lines(tmp_path)
    line["sealed"] = encryption.base64.b64encode(bytes(size)).decode()
    (tmp_path / "vault" / VALUES).write_text(json.dumps(head) + "\n" + json.dumps(line) + "\n")
    with pytest.raises(OwlError, match="too short"):
        opened(tmp_path).get("llm/a")


@pytest.mark.parametrize("change", [{"name": "llm/b"}, {"expires_ms": 9_999_999_999_999}, {"created_ms": 1}])
def test_a_value_cannot_be_given_another_name_or_date(tmp_path: Path, change: dict[str, object]) -> None:
    opened(tmp_path).set("llm/a", "value-of-a")
    head, line = lines(tmp_path)
    line |= change
    (tmp_path / "vault" / VALUES).write_text(json.dumps(head) + "\n" + json.dumps(line) + "\n")
    with pytest.raises(OwlError, match="was changed"):
        opened(tmp_path).get(str(line["name"]))


def test_a_damaged_line_stays_until_it_is_removed(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.set("llm/a", "value-of-a")
    path = tmp_path / "vault" / VALUES
    path.write_bytes(path.read_bytes() + b"\xff broken\n")
    box.set("llm/b", "value-of-b")
    assert b"\xff broken\n" in path.read_bytes() and [s.name for s in box.listing()] == ["line-3", "llm/a", "llm/b"]
    with pytest.raises(OwlError, match="line-3 of the vault is damaged"):
        box.rotate()
    assert box.get("llm/a") == "value-of-a"
    box.remove("line-3")
    assert box.rotate() == 2 and box.get("llm/b") == "value-of-b"


@pytest.mark.parametrize("key", ["created_ms", "expires_ms"])
@pytest.mark.parametrize("date", ["17e41234567890", "-1", "1.5", "true", '"soon"', "9" * 30])
def test_a_date_that_is_none_costs_that_secret_alone(tmp_path: Path, key: str, date: str) -> None:
    box = opened(tmp_path)
    box.set("llm/a", "value-of-a", now_ms() + 10**9)
    box.set("llm/b", "value-of-b", now_ms() + 10**9)
    head, line, other = (tmp_path / "vault" / VALUES).read_text().splitlines()
    damaged = line.replace(f'"{key}": {json.loads(line)[key]}', f'"{key}": {date}')
    assert damaged != line
    (tmp_path / "vault" / VALUES).write_text(f"{head}\n{damaged}\n{other}\n")
    again = opened(tmp_path)
    assert again.get("llm/b") == "value-of-b" and [s.name for s in again.listing()] == ["line-2", "llm/b"]


@pytest.mark.parametrize("end", [-1, 10**15])
def test_an_end_that_no_calendar_has_is_refused(tmp_path: Path, end: int) -> None:
    box = opened(tmp_path)
    box.set("llm/a", "value-of-a")
    for act in (lambda: box.expire("llm/a", end), lambda: box.set("llm/a", "value-of-a", end)):
        with pytest.raises(BadInput, match="cannot end then"):
            act()
    assert box.listing()[0].expires_ms is None


def test_a_damaged_first_line_is_said_and_nothing_is_written_over_it(tmp_path: Path) -> None:
    opened(tmp_path).set("llm/a", "value-of-a")
    path = tmp_path / "vault" / VALUES
    good = path.read_bytes()
    path.write_bytes(b"?" + good)
    for act in (lambda box: box.get("llm/a"), lambda box: box.set("llm/b", "abcdefgh"), lambda box: box.rotate()):
        with pytest.raises(OwlError, match="damaged in its first line"):
            act(opened(tmp_path))
    assert path.read_bytes() == b"?" + good
    path.write_bytes(good)
    assert opened(tmp_path).get("llm/a") == "value-of-a"


def test_a_lost_key_is_said_and_nothing_is_overwritten(tmp_path: Path) -> None:
    opened(tmp_path).set("llm/a", "value-of-a")
    (key,) = (tmp_path / "vault").glob("key-*")
    kept = key.read_bytes()
    key.write_bytes(bytes(32))
    for act in (lambda box: box.get("llm/a"), lambda box: box.set("llm/b", "abcdefgh")):
        with pytest.raises(Unavailable, match="does not open the vault"):
            act(opened(tmp_path))
    key.unlink()
    with pytest.raises(Unavailable, match="No such file"):
        opened(tmp_path).get("llm/a")
    assert [s.name for s in opened(tmp_path).listing()] == ["llm/a"]
    key.write_bytes(kept)
    assert opened(tmp_path).get("llm/a") == "value-of-a"


# -- the key ------------------------------------------------------------------------------------------


@pytest.mark.covers("A-195")
def test_a_credential_opens_it_unattended_and_no_key_is_on_disk(tmp_path: Path) -> None:
    opened(tmp_path, credential=CREDENTIAL).set("llm/a", "value-of-a")
    assert sorted(p.name for p in (tmp_path / "vault").iterdir()) == [VALUES]
    again = opened(tmp_path, credential=CREDENTIAL)
    assert again.get("llm/a") == "value-of-a" and again.status()["key"] == "credential"
    for credential, words in ((b"", "no credential"), (b"x" * 31, "31 bytes"), (b"y" * 32, "does not open")):
        with pytest.raises(Unavailable, match=words):
            opened(tmp_path, credential=credential).get("llm/a")


@pytest.mark.covers("A-195")
def test_the_credential_is_taken_from_where_systemd_puts_it(tmp_path: Path) -> None:
    assert vault.credential({}) == b"" == vault.credential({"CREDENTIALS_DIRECTORY": str(tmp_path)})
    (tmp_path / "owlbox-vault.key").write_bytes(CREDENTIAL)
    assert vault.credential({"CREDENTIALS_DIRECTORY": str(tmp_path)}) == CREDENTIAL


@pytest.mark.covers("A-194", "A-195")
def test_a_passphrase_is_derived_slowly_and_given_once_a_start(tmp_path: Path) -> None:
    box = Vault(tmp_path / "vault")
    box.set("llm/a", "value-of-a")
    box.rotate("passphrase", "correct horse")
    head = lines(tmp_path)[0]
    assert head["kind"] == "passphrase" and int(str(head["iterations"])) >= 600_000 and len(str(head["salt"])) == 32
    again = Vault(tmp_path / "vault")
    assert again.is_locked and again.values() == [] and [s.name for s in again.listing()] == ["llm/a"]
    for act in (lambda: again.get("llm/a"), lambda: again.set("llm/b", "abcdefgh"), lambda: again.rotate("file")):
        with pytest.raises(Unavailable, match="the vault is locked"):
            act()
    with pytest.raises(Refused, match="not the vault's passphrase"):
        again.unlock("correct horsf")
    again.unlock("correct horse")
    assert not again.is_locked and again.get("llm/a") == "value-of-a"


def test_a_passphrase_that_is_short_or_not_asked_for_is_refused(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.set("llm/a", "value-of-a")
    with pytest.raises(BadInput, match="7 characters is too short"):
        box.rotate("passphrase", "1234567")
    with pytest.raises(BadInput, match="has no passphrase"):
        box.unlock("correct horse")
    assert opened(tmp_path).get("llm/a") == "value-of-a"


@pytest.mark.covers("A-200", "E-320")
@pytest.mark.parametrize("to", ["file", "passphrase", "credential", None])
@pytest.mark.parametrize("start", ["file", "passphrase", "credential"])
def test_rotation_encrypts_all_anew_and_all_are_readable_after_a_restart(tmp_path: Path, start: Kind, to: Kind | None) -> None:
    box = opened(tmp_path, credential=CREDENTIAL)
    box.rotate(start, "first passphrase")
    for number in range(5):
        box.set(f"llm/p{number}", f"value-{number}")
    before = lines(tmp_path)
    assert box.rotate(to, "second passphrase") == 5
    after = lines(tmp_path)
    assert not {str(line.get("sealed")) for line in before[1:]} & {str(line.get("sealed")) for line in after[1:]}
    assert before[0]["id"] != after[0]["id"] and after[0]["kind"] == (to or start)
    keys = [p.name for p in (tmp_path / "vault").glob("key-*")]
    assert keys == ([f"key-{after[0]['id']}"] if after[0]["kind"] == "file" else [])
    again = opened(tmp_path, credential=CREDENTIAL)
    if again.is_locked:
        with pytest.raises(Refused):
            again.unlock("first passphrase")
        again.unlock("second passphrase")
    assert [again.get(f"llm/p{number}") for number in range(5)] == [f"value-{number}" for number in range(5)]


@pytest.mark.covers("A-200")
def test_a_rotation_that_fails_leaves_the_old_key_in_force(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.set("llm/a", "value-of-a")
    before = {p.name: p.read_bytes() for p in (tmp_path / "vault").iterdir()}
    for to, words in (("credential", "no credential"), ("passphrase", "too short")):
        with pytest.raises(OwlError, match=words):
            box.rotate(to, "")  # type: ignore[arg-type]
        assert {p.name: p.read_bytes() for p in (tmp_path / "vault").iterdir()} == before
        assert box.get("llm/a") == opened(tmp_path).get("llm/a") == "value-of-a"


KILLED_AT = """
import os, signal, sys
from pathlib import Path
from appliance.secrets.vault import Vault
box = Vault(Path(sys.argv[1]), iterations=1000)
box.values()
left = int(sys.argv[3])
def hook(event, args):
    global left
    if event in ("open", "os.rename", "os.remove", "os.mkdir"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
exec(sys.argv[2])
"""


def killed_at_every_step(folder: Path, act: str) -> int:
    """Run an act of the vault again and again, killed at its first, second, ... touch of a file; how many there were."""
    for step in range(200):
        command = [sys.executable, "-c", KILLED_AT, str(folder / "vault"), act, str(step)]
        done = quick.run(command, cwd=quick.ROOT, env=quick.ENVIRON)
        values = {name: opened(folder).get(name) for name in ("llm/a", "llm/b")}
        assert values["llm/a"] == "value-of-a" and values["llm/b"] in ("value-of-b", "new-value-of-b"), f"killed at step {step}"
        if done.returncode == 0:
            return step
        assert done.returncode == -signal.SIGKILL
    raise AssertionError("never ended by itself")


@pytest.mark.covers("A-200", "A-197")
@pytest.mark.parametrize(("act", "steps"), [("box.rotate()", 5), ("box.set('llm/b', 'new-value-of-b')", 3)])
def test_killed_at_any_moment_all_are_readable(tmp_path: Path, act: str, steps: int) -> None:
    box = opened(tmp_path)
    box.set("llm/a", "value-of-a")
    box.set("llm/b", "value-of-b")
    assert killed_at_every_step(tmp_path, act) >= steps
    opened(tmp_path).rotate()
    assert len(list((tmp_path / "vault").iterdir())) == 2  # the values and one key: nothing half written is left


def test_two_brokers_on_one_folder_lose_nothing_and_see_each_other(tmp_path: Path) -> None:
    one, two = opened(tmp_path), opened(tmp_path)

    def fill(box: Vault, who: str) -> None:
        for number in range(15):
            box.set(f"llm/{who}{number}", f"value-{number}")
            if number % 5 == 4:
                box.rotate()

    threads = [threading.Thread(target=fill, args=(box, who)) for box, who in ((one, "a"), (two, "b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for box in (one, two, opened(tmp_path)):
        assert {box.get(f"llm/{who}{number}") for who in "ab" for number in range(15)} == {f"value-{n}" for n in range(15)}


def test_what_becomes_known_is_told_to_be_hidden(tmp_path: Path) -> None:
    heard: list[str] = []
    Vault(tmp_path / "vault", learn=heard.append).set("llm/a", "value-of-a")
    assert heard == ["value-of-a"]
    later: list[str] = []
    assert Vault(tmp_path / "vault", learn=later.append).values() == ["value-of-a"]


# -- seals --------------------------------------------------------------------------------------------


def test_only_the_letterbox_it_was_posted_to_opens_it_and_only_about_the_same() -> None:
    box, other = encryption.Letterbox(), encryption.Letterbox()
    sealed = encryption.post(box.address, "välue", "set llm/a")
    assert box.open(sealed, "set llm/a") == "välue"
    for reader, text, about in (
        (other, sealed, "set llm/a"),
        (box, sealed, "set llm/b"),
        (box, sealed[:-8] + "AAAAAAA=", "set llm/a"),
        (box, "", "set llm/a"),
        (box, "not base64!", "set llm/a"),
    ):
        with pytest.raises(BadInput, match="not sealed for this process"):
            reader.open(text, about)
    with pytest.raises(BadInput, match="not an address"):
        encryption.post("AAAA", "x", "y")


def test_two_seals_of_the_same_differ() -> None:
    box = encryption.Letterbox()
    assert encryption.post(box.address, "x", "y") != encryption.post(box.address, "x", "y")
    assert encryption.seal(bytes(32), b"x", b"y") != encryption.seal(bytes(32), b"x", b"y")
