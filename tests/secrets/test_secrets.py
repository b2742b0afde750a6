"""`owlbox secret` over a real core and broker, and the canary: where keys are after a turn, and where they are not."""

import json
import os
import pty
import resource
import select
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import needs
from process import ROOT, Box, Core, a_box, a_shared_box, boxed, end, send, until

from appliance.errors import NotFound, OwlError, Refused
from appliance.runtime.log import HIDDEN, Redactor
from appliance.runtime.rpc_client import Client
from appliance.secrets import encryption
from appliance.secrets.vault_client import VaultClient

__all__ = ["a_box", "a_shared_box"]


@pytest.fixture(scope="module")
def core(shared_box: Box) -> Core:
    return shared_box.serve()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of the test's own."""
    return f"llm/{request.node.name[:40].replace('[', '-').replace(']', '').replace('/', '_')}"


def put(core: Core, name: str, value: str, **more: Any) -> dict[str, Any]:
    sealed = encryption.post(core.call("secret.address"), value, f"set {name}")
    done: dict[str, Any] = core.call("secret.set", name=name, sealed=sealed, **more)
    return done


def listed(core: Core, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(s for s in core.call("secret.list")["secrets"] if s["name"] == name)
    return found


def broker(core: Core) -> Client:
    """A connection to the core's broker, as the core itself has one."""
    lent = core.call("core.broker")
    return Client(lent["socket"], name="test", token=lent["token"], timeout_s=60)


# -- commands -----------------------------------------------------------------------------------------


@pytest.mark.covers("A-198", "A-194")
def test_a_value_from_a_pipe_is_kept_and_never_shown(shared_box: Box, core: Core, name: str) -> None:
    done = shared_box.run("secret", "set", name, "--expires", "3d", text="sk-pipe-0123456789\n")
    assert (done.returncode, done.stdout) == (0, f"{name} is kept\n")
    assert shared_box.run("secret", "set", name, text="sk-pipe-0123456789").returncode == 0
    outs = [shared_box.run("secret", *words) for words in (["list"], ["list", "--json"], ["show", name], ["show", name, "--json"])]
    assert all(out.returncode == 0 and name in out.stdout and "sk-pipe" not in out.stdout + out.stderr for out in outs)
    assert all("[hidden]" in out.stdout for out in outs)
    refused = shared_box.run("secret", "show", name, "--yes")
    assert refused.returncode == 4 and "never leaves the broker" in refused.stderr and "sk-pipe" not in refused.stderr
    assert shared_box.run("secret", "rm", name).stdout == f"{name} is gone\n"
    assert shared_box.run("secret", "rm", name).returncode == 3


@pytest.mark.covers("A-194")
def test_a_value_on_the_command_line_is_refused_with_the_reason(shared_box: Box, core: Core, name: str) -> None:
    done = shared_box.run("secret", "set", name, "sk-argument-0123456789")
    assert done.returncode == 2 and "never given as an argument" in done.stderr and "pipe it in" in done.stderr
    assert "sk-argument" not in done.stdout + done.stderr
    with pytest.raises(StopIteration):
        listed(core, name)


@pytest.mark.covers("A-195")
def test_a_typed_value_is_not_echoed(shared_box: Box, core: Core, name: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, shared_box.command("secret", "set", name), shared_box.environ)
    seen = b""
    try:
        while b"value of" not in seen:
            seen += read(terminal)
        os.write(terminal, b"sk-typed-0123456789\n")
        while b"is kept" not in seen:
            seen += read(terminal)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    assert b"sk-typed" not in seen and listed(core, name)["uses"] == 0


def read(terminal: int) -> bytes:
    assert select.select([terminal], [], [], 60)[0], "nothing is printed"
    return os.read(terminal, 4096)


@pytest.mark.covers("A-201")
@pytest.mark.parametrize(
    ("words", "text", "complaint"),
    [
        (["set", "openai"], "abcdefgh", "'openai' cannot name a secret"),
        (["set", "llm/"], "abcdefgh", "no name cannot name a secret"),
        (["set", "llm/empty"], "\n", "the value is empty"),
        (["set", "llm/x", "--expires", "soon"], "abcdefgh", "'soon' is not a time"),
        (["set", "llm/x", "--expires", "2020-01-01"], "abcdefgh", "has passed"),
        (["set", "llm/x", "--expires", "0001-01-01"], "abcdefgh", "not a time"),
        (["expire", "search/there", "0001-01-01"], "", "not a time"),
        (["rotate", "--to", "credential"], "", "the broker has no credential"),
        (["rotate", "--to", "passphrase"], "short", "too short"),
        (["unlock"], "what ever", "has no passphrase"),
        (["show", "llm/nothing"], "", "no secret llm/nothing"),
    ],
)
def test_bad_usage_is_said(shared_box: Box, core: Core, words: list[str], text: str, complaint: str) -> None:
    put(core, "search/there", "there-is-one")
    done = shared_box.run("secret", *words, text=text)
    assert done.returncode in (2, 3, 5) and complaint in done.stderr and done.stdout == ""


@pytest.mark.covers("A-199", "E-320")
def test_what_expires_is_listed_refused_and_purged(shared_box: Box, core: Core) -> None:
    put(core, "search/old", "value-of-old")
    assert "in 4 days" in shared_box.run("secret", "expire", "search/old", "5d").stdout + shared_box.run("secret", "list").stdout
    assert core.call("core.status")["broker"]["vault"]["expiring"] >= 1
    assert "end within 7 days" in shared_box.run("status").stdout
    assert shared_box.run("secret", "expire", "search/old", "now").returncode == 0
    assert "(expired)" in shared_box.run("secret", "list").stdout
    with broker(core) as client, pytest.raises(Refused, match="expired") as caught:
        client.call("secret.get", {"name": "search/old"})
    assert caught.value.outcome == "permission"
    assert shared_box.run("secret", "purge").stdout == "removed search/old\n"
    assert shared_box.run("secret", "purge").stdout == "nothing has expired\n"


@pytest.mark.covers("A-200")
def test_rotation_leaves_every_secret_readable_also_after_a_restart(shared_box: Box, core: Core) -> None:
    put(core, "search/kept", "value-of-kept")
    assert "under a new key (file)" in shared_box.run("secret", "rotate").stdout
    send(pid := core.broker_pid(), signal.SIGKILL)
    until(lambda: core.broker_pid() != pid, "the broker is there again")
    with broker(core) as client:
        assert client.call("secret.get", {"name": "search/kept"}) == "value-of-kept"


@pytest.mark.covers("A-195")
def test_a_passphrase_is_asked_for_after_a_restart_and_in_no_file(box: Box) -> None:
    core = box.serve()
    put(core, "search/kept", "value-of-kept")
    assert box.run("secret", "rotate", "--to", "passphrase", text="correct horse").returncode == 0
    core.stop()
    again = box.serve()
    again.broker_pid()
    assert "locked: owlbox secret unlock" in box.run("status").stdout + box.run("doctor").stdout
    assert "the vault is locked" in box.run("secret", "list").stdout
    with broker(again) as client, pytest.raises(OwlError, match="locked"):
        client.call("secret.get", {"name": "search/kept"})
    assert box.run("secret", "unlock", text="wrong horses").returncode == 4
    assert box.run("secret", "unlock", text="correct horse").returncode == 0
    with broker(again) as client:
        assert client.call("secret.get", {"name": "search/kept"}) == "value-of-kept"
    assert [p for p in files(box.home.root) if b"correct horse" in p.read_bytes()] == []
    again.stop()


def test_without_a_core_the_same_commands_work(box: Box) -> None:
    assert box.run("secret", "set", "mcp/git", text="value-of-git").returncode == 0
    assert [s["name"] for s in box.json("secret", "list")["secrets"]] == ["mcp/git"]
    shown = box.run("secret", "show", "mcp/git", "--yes").stdout
    assert "value-of-git" in shown and box.json("secret", "list")["secrets"][0]["uses"] == 1
    assert stat.S_IMODE(box.home.vault.stat().st_mode) == 0o700
    found = next(f for f in json.loads(box.run("doctor", "--json").stdout) if f["name"] == "vault")
    assert found["state"] == "warning" and "its key is beside it" in found["message"] and "secret rotate" in found["hint"]


# -- who gets a value ---------------------------------------------------------------------------------


@pytest.mark.covers("A-107")
def test_the_core_gets_every_kind_but_keys_of_providers(core: Core) -> None:
    for kind in ("channel", "search", "mcp", "skill"):
        put(core, f"{kind}/one", f"value-for-{kind}")
    put(core, "llm/one", "value-for-llm")
    with broker(core) as client:
        for kind in ("channel", "search", "mcp", "skill"):
            assert client.call("secret.get", {"name": f"{kind}/one"}) == f"value-for-{kind}"
        box = encryption.Letterbox()
        for method, more in (("secret.get", {}), ("secret.reveal", {"address": box.address})):
            for name in ("llm/one", "LLM/one", "llm//one", "x/../llm/one"):
                with pytest.raises(Refused, match="never leaves the broker"):
                    client.call(method, {"name": name, **more})
        sealed = client.call("secret.reveal", {"name": "mcp/one", "address": box.address})
        assert box.open(sealed, "reveal mcp/one") == "value-for-mcp"


AS_NOBODY = """
import os, sys
from appliance.runtime.rpc_client import Client
from appliance.errors import OwlError
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    with Client(sys.argv[1], name="test", token=sys.argv[2]) as client:
        print(client.call("secret.get", {"name": "search/one"}))
except OwlError as error:
    print(error)
"""


@needs(root=True)
def test_another_user_gets_nothing_even_with_the_token(core: Core) -> None:
    put(core, "search/one", "value-for-search")
    lent = core.call("core.broker")
    folder = Path(lent["socket"]).parent
    modes = {path: path.stat().st_mode for path in (folder.parent, folder, Path(lent["socket"]))}
    try:
        for path in modes:
            path.chmod(0o777)
        command = [sys.executable, "-c", AS_NOBODY, lent["socket"], lent["token"]]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    finally:
        for path, mode in modes.items():
            path.chmod(stat.S_IMODE(mode))
    assert "value-for-search" not in done.stdout + done.stderr
    assert "not to 65534" in done.stdout, done


def test_what_the_core_fetches_is_hidden_in_its_log(core: Core) -> None:
    put(core, "search/hidden", "value-to-be-hidden")
    redactor = Redactor()

    def call(method: str, params: dict[str, Any]) -> Any:
        with broker(core) as client:
            return client.call(method, params)

    box = VaultClient(call, redactor)
    assert (box.resolve("plain"), box.resolve("secret:search/hidden")) == ("plain", "value-to-be-hidden")
    assert redactor.clean("a value-to-be-hidden b") == f"a {HIDDEN} b"
    with pytest.raises(NotFound):
        box.resolve("secret:search/none")


@pytest.mark.covers("A-204")
def test_what_only_the_broker_knows_is_hidden_by_the_core_too(core: Core) -> None:
    key = 'a very plain "looking" key'
    put(core, "llm/marked", key)
    redactor = Redactor(["known to the core"])
    with broker(core) as client:
        found = client.call("secret.marks")
        VaultClient(client.call, redactor).learn(client.call)
    assert key[:8] not in json.dumps(found) and found
    quoted = json.dumps({"env": f"KEY={key}"})
    text = f'PATH=/bin\0KEY={key}\0{key}{key}a very plain "looking" Key {quoted} known to the core'
    assert redactor.clean(text) == (
        f'PATH=/bin\0KEY={HIDDEN}\0{HIDDEN}{HIDDEN}a very plain "looking" Key {{"env": "KEY={HIDDEN}"}} {HIDDEN}'
    )
    put(core, "llm/marked", "another one, and as long")
    with broker(core) as client:
        VaultClient(client.call, redactor).learn(client.call)
    assert redactor.clean(f"{key} another one, and as long") == f"{key} {HIDDEN}"


@pytest.mark.covers("A-204")
def test_a_key_given_to_the_broker_is_hidden_in_what_the_core_writes_down(core: Core) -> None:
    put(core, "llm/logged", "plain-looking-key-of-the-log")
    with pytest.raises(OwlError):
        core.call("plain-looking-key-of-the-log")
    log = core.box.home.logs / "core.log"
    until(lambda: f'"operation": "{HIDDEN}"' in log.read_text(), "the request is in the log")
    assert "plain-looking-key" not in log.read_text()


@pytest.mark.covers("A-204")
@needs("bwrap")
def test_no_key_is_in_what_a_command_says(core: Core) -> None:
    put(core, "llm/said", "plain looking key of a file")
    command = "cat /proc/self/environ /proc/*/environ; echo plain looking 'key of a file' | tee copy >&2; cat copy"
    done = core.call("tool.call", name="exec", arguments={"command": command})
    said = json.dumps(done)
    assert done["status"] == 200 and "EXECUTION_ID=" in said and said.count(HIDDEN) >= 3
    token = core.call("core.broker")["token"]
    assert not [word for word in ("plain looking", "OWLBOX", token) if word in said]


# -- the canary ---------------------------------------------------------------------------------------

TYPED, PLAIN, NAMED, GIVEN, FOREIGN = (f"sk-canary-{word}-0123456789" for word in ("typed", "plain", "named", "given", "foreign"))
CANARIES = [word.encode() for word in (TYPED, PLAIN, NAMED, GIVEN, FOREIGN)]


@pytest.fixture(scope="module")
def nest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    """A core that was given keys in every way there is, and has done a full turn since."""
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as runtime:
        with boxed(tmp_path_factory.mktemp("nest"), Path(runtime)) as box:
            kept = box.home.config.read_text()
            tables = f'[providers.openai]\nkey = "{PLAIN}" # mine\n[providers.groq]\nkey = "${{GROQ_API_KEY}}"\n'
            box.home.config.write_text(f"# {PLAIN}\n{tables}{kept}")
            core = box.serve(GROQ_API_KEY=NAMED, OWLBOX__PROVIDERS__MISTRAL__KEY=GIVEN, XAI_API_KEY=FOREIGN)
            assert box.run("secret", "set", "llm/anthropic", text=TYPED).returncode == 0
            done = box.run("ask", "hi there")
            assert (done.returncode, done.stdout) == (0, "Hoot hoot.\n"), done.stderr
            core.call("secret.list")
            yield core
            end(core.child)


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]


def memory(pid: int) -> Iterator[bytes]:
    """What a process has in its writable memory."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, mode, *_ = line.split()
            if mode.startswith("rw") and not line.endswith(("[vvar]", "[vsyscall]")):
                start, stop = (int(part, 16) for part in span.split("-"))
                try:
                    mem.seek(start)
                    yield mem.read(stop - start)
                except OSError:
                    continue


def held(pid: int) -> set[bytes]:
    """Canaries in a process's memory."""
    return {canary for part in memory(pid) for canary in CANARIES if canary in part}


def opened(pid: int) -> Iterator[bytes]:
    """What is in the files that a process has open."""
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if stat.S_ISREG(fd.stat().st_mode):
                yield fd.read_bytes()
        except OSError:
            continue  # closed meanwhile


@pytest.mark.covers("A-107", "A-194")
def test_keys_are_in_the_broker_s_memory_and_in_no_other_process(nest: Core) -> None:
    assert held(nest.child.pid) == set()
    if os.geteuid() == 0:  # what we look with would have found them
        assert held(nest.broker_pid()) == {TYPED.encode(), PLAIN.encode(), NAMED.encode(), GIVEN.encode()}
    said = json.dumps(nest.call("tool.call", name="exec", arguments={"command": "cat /proc/*/environ /proc/*/cmdline"}))
    assert "sk-canary" not in said
    for pid in (nest.child.pid, nest.broker_pid()) if os.geteuid() == 0 else (nest.child.pid,):
        for kind in ("environ", "cmdline"):
            text = Path(f"/proc/{pid}/{kind}").read_bytes()
            assert text and not [canary for canary in CANARIES if canary in text], f"{kind} of {pid}"
        assert {canary for text in opened(pid) for canary in CANARIES if canary in text} == set()


@pytest.mark.covers("A-107", "A-194")
def test_keys_are_in_no_file(nest: Core) -> None:
    box = nest.box
    nest.call("core.status")
    looked = [*files(box.home.root), *files(box.runtime), *files(Path(box.environ["HOME"]))]
    names = {path.name for path in looked}
    assert {"owlbox.db", "owlbox.db-wal", "core.log", "broker.log", "secrets", "owlbox.toml"} <= names
    assert [path for path in looked if any(canary in path.read_bytes() for canary in CANARIES)] == []
    text = box.home.config.read_text()
    tables = '[providers.openai]\nkey = "secret:llm/openai" # mine\n[providers.groq]\nkey = "secret:llm/groq"\n'
    assert text.startswith(f"# secret:llm/openai\n{tables}")
    kept = {s["name"] for s in nest.call("secret.list")["secrets"]}
    assert kept == {f"llm/{provider}" for provider in ("openai", "groq", "mistral", "anthropic")}


def test_the_person_is_told_what_was_moved_without_the_key(nest: Core) -> None:
    told = [line["message"] for line in nest.box.log("core")]
    for words in ("providers.openai.key of /", "variable GROQ_API_KEY", "OWLBOX__PROVIDERS__MISTRAL__KEY", "llm/mistral"):
        assert any(words in line for line in told), words
    assert any("XAI_API_KEY" in line for line in told) and nest.call("core.status")["pid"] == nest.child.pid


@pytest.mark.covers("A-107", "A-194")
def test_the_broker_leaves_no_core_file_and_hides_from_its_own_user(nest: Core) -> None:
    pid = nest.broker_pid()
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    assert next(line for line in limits if line.startswith("Max core file size")).split()[4:6] == ["0", "0"]
    assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)
    assert Path(f"/proc/{pid}/mem").stat().st_uid == 0  # a process that may be dumped belongs to its user
    if os.geteuid() != 0:
        with pytest.raises(PermissionError):
            Path(f"/proc/{pid}/environ").read_bytes()


def test_doctor_names_what_the_configuration_wants_and_the_vault_lacks(nest: Core) -> None:
    def finding(**environ: str) -> dict[str, str]:
        found = json.loads(nest.box.run("doctor", "--json", **environ).stdout)
        return next((f for f in found if "channel/none" in f["message"]), next(f for f in found if f["name"] == "vault"))

    lacking = finding(OWLBOX__CHANNELS__SLACK__BOT_TOKEN="secret:channel/none")
    assert lacking["state"] != "ok" and "channels.slack.bot_token cannot work" in lacking["message"]
    assert "owlbox secret set channel/none" in lacking["hint"] and "its key is beside it" in finding()["message"]
    plain = finding(OWLBOX__CHANNELS__SLACK__BOT_TOKEN="xoxb-plain-text")
    assert "in plain: channels.slack.bot_token" in plain["message"] and "xoxb" not in json.dumps(plain)


def test_a_key_written_into_the_file_of_a_running_core_is_moved_by_a_reload(nest: Core) -> None:
    config = nest.box.home.config
    config.write_text(config.read_text() + '\n[providers.xai]\nkey = "sk-later-0123456789"\n')
    done = nest.call("core.reload")
    assert "providers.xai" in done["changed"] + done["restart"]
    assert "sk-later" not in config.read_text() and 'key = "secret:llm/xai"' in config.read_text()
    assert listed(nest, "llm/xai")["uses"] == 0


@pytest.mark.covers("A-107")
def test_a_worker_begins_anew_without_the_keys_it_was_given(box: Box) -> None:
    with box.home.config.open("a") as file:
        file.write(f'\n[channels.slack]\nbot_token = "{PLAIN}"\n')
    worker = box.start("worker", "run", "--persist", OWLBOX__PROVIDERS__GROQ__KEY=NAMED, OPENAI_API_KEY=FOREIGN)
    until(lambda: "secret:channel/slack-bot_token" in box.home.config.read_text(), "the key is moved")
    until(lambda: b"OWLBOX_AGAIN" in Path(f"/proc/{worker.pid}/environ").read_bytes(), "it has begun anew")
    until(lambda: [w["pid"] for w in box.json("worker", "list", "--status", "running")] == [worker.pid], "it works")
    assert held(worker.pid) == set() and b"sk-canary" not in Path(f"/proc/{worker.pid}/environ").read_bytes()
