"""The door over ssh: the allow-list by table, then a real sshd on loopback with the real drop-in.

The drop-in is the one that is installed, for the user who runs the tests instead of owl. Everything else in
the server's configuration is as lax as an admin could make it, so that what is refused is refused by us.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import quick
from needs import needs
from process import PLAY, Box, a_box, a_shared_box, end, script, until
from sshd import LAX, ROOT, SSHD, USER, Door, free_port, is_listening, looking, opened

from appliance.channels import ssh_command
from appliance.cli import main
from appliance.clock import monotonic_s
from appliance.errors import BadInput

__all__ = ["a_box", "a_shared_box"]
pytestmark = needs("sshd", "ssh", "ssh-keygen")


# -- the allow-list -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("   \n", []),
        ("status", ["status"]),
        ("status --json", ["status", "--json"]),
        ("ask hi", ["ask", "--", "hi"]),
        ("ask 'what is new'", ["ask", "--", "what is new"]),
        ("ask what's new", ["ask", "--", "what's", "new"]),
        ("ask hi; reboot", ["ask", "--", "hi;", "reboot"]),
        ("ask $HOME * ~ > /x && id", ["ask", "--", "$HOME", "*", "~", ">", "/x", "&&", "id"]),
        ("ask -- -rf $(reboot) `id` | sh", ["ask", "--", "-rf", "$(reboot)", "`id`", "|", "sh"]),
        ("ask one\nreboot", ["ask", "--", "one", "reboot"]),
        ("ask one\0reboot", ["ask", "--", "one\0reboot"]),
        ("ask -- --home /etc", ["ask", "--", "--home", "/etc"]),
        ("ask --thread --home hi", ["ask", "--thread=--home", "--", "hi"]),
        ("ask --thread=abc --later hi there", ["ask", "--thread=abc", "--later", "--", "hi", "there"]),
        ("search owl --limit 3", ["search", "--limit=3", "--", "owl"]),
        ("thread list --limit 5", ["thread", "list", "--limit=5"]),
        ("thread view abc", ["thread", "view", "--", "abc"]),
        ("remember 'owls eat mice'", ["remember", "--", "owls eat mice"]),
    ],
)
def test_text_becomes_words_of_ours(text: str, words: list[str]):
    assert ssh_command.admit(text) == words
    if words and "\0" not in text:
        args = main.parser(words).parse_args(words)
        assert args.home is None


@pytest.mark.parametrize(
    "text",
    [
        "rm -rf /",
        "sh",
        "bash -i",
        "/bin/sh -c id",
        "../../bin/sh",
        "internal-sftp",
        "/usr/lib/openssh/sftp-server",
        "scp -t /tmp/x",
        "rsync --server . /",
        "git-upload-pack x",
        "owlbox status",
        "door",
        "serve",
        "broker --socket /tmp/x",
        "init --home /tmp/x",
        "docs --write /tmp",
        "model add /etc/passwd",
        "reload",
        "maintain",
        "chat",
        "thread",
        "thread delete abc",
        "thread 'list --home /etc'",
        "'ask hi'",
        "STATUS",
        "status\\ --json",
        "--home /etc status",
        "--json status",
        "-h",
        "status --home /etc",
        "status --home=/etc",
        "status --hom=/etc",
        "status --json=/etc",
        "ask hi --home /etc",
        "ask '--home=/etc' hi",
        'ask "--home" /etc hi',
        "ask \\--home /etc hi",
        "ask -h",
        "ask hi; rm -r /",
        "ask --thr abc",
        "ask --thread",
        "doctor",  # which only the home's owner may run
        "prompt-size --rep",
        "search x --home=/etc",
        "prompt-size --write /tmp",
        "\u2010\u2010home /etc",
        "statu\u0455",
    ],
)
def test_anything_else_is_refused_in_one_line(text: str):
    with pytest.raises(BadInput) as caught:
        ssh_command.admit(text)
    assert caught.value.exit_code == 2
    assert len(str(caught.value).splitlines()) == 1 and caught.value.hint or "needs a value" in caught.value.message


def test_every_offered_command_and_option_exists():
    for command, options in ssh_command.ALLOWED.items():
        helped = quick.run([sys.executable, "-m", "appliance", *command, "--help"], cwd=ROOT, env=quick.ENVIRON, text=True)
        assert helped.returncode == 0
        assert [name for name in (*options, *ssh_command.EVERYWHERE) if name not in helped.stdout] == []


def test_the_door_runs_what_was_asked_and_nothing_else(box: Box):
    assert box.run("door", SSH_ORIGINAL_COMMAND="ask hi").stdout == "Hoot hoot.\n"
    refused = box.run("door", SSH_ORIGINAL_COMMAND="init --home /tmp/x\n--force")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)


# -- a real sshd --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def door(shared_box: Box) -> Iterator[Door]:
    """A scripted core behind it, for all: each looks at what it asked itself, and people have names of their own."""
    (shared_box.home.box / "BOOTSTRAP.md").unlink()  # the first questions are answered
    script(shared_box, PLAY)
    shared_box.serve()
    with opened(shared_box, Path(shared_box.environ["XDG_RUNTIME_DIR"])) as made:
        yield made


def test_the_drop_in_binds_owl_and_nobody_else(door: Door):
    """As sshd itself understands the installed file, read as an included one before the rest."""
    config = door.folder / "whole"
    config.write_text(f"Include {ROOT}/systemd/sshd-owlbox.conf\n" + LAX.format(folder=door.folder))
    said = {}
    for user in ("owl", "root"):
        show = [SSHD, "-T", "-f", str(config), "-C", f"user={user},host=h,addr=127.0.0.1"]
        lines = subprocess.run(show, check=True, capture_output=True, text=True).stdout.splitlines()
        said[user] = dict(line.partition(" ")[::2] for line in lines)
    wanted = {"forcecommand": "/opt/owlbox/bin/owlbox door", "disableforwarding": "yes", "authenticationmethods": "publickey"}
    no = (
        "allowtcpforwarding",
        "allowstreamlocalforwarding",
        "allowagentforwarding",
        "x11forwarding",
        "permittunnel",
        "gatewayports",
    )
    no += ("permituserrc", "passwordauthentication", "kbdinteractiveauthentication", "permituserenvironment")
    wanted |= dict.fromkeys(no, "no") | {"permitopen": "none", "permitlisten": "none", "permittty": "yes"}
    assert {name: said["owl"][name] for name in wanted} == wanted
    assert [
        name for name in ("forcecommand", "x11forwarding", "permittunnel", "permituserrc") if said["root"][name] == wanted[name]
    ] == []


def test_commands_of_the_allow_list_work(door: Door):
    asked = door.ssh("ask", "hi")
    assert (asked.returncode, asked.stdout) == (0, "Hoot hoot.\n"), asked.stderr + (door.folder / "sshd.log").read_text()
    assert door.ssh("status").stdout.startswith("core         running, pid ")
    assert "hi" in door.ssh("thread", "list").stdout
    assert door.ssh("remember", "owls eat mice").returncode == 0
    assert "mice" in door.ssh("search", "mice").stdout


def test_other_commands_are_refused_with_one_line(door: Door):
    mark = door.folder / "mark"
    for text in ("sh", f"touch {mark}", "status --home /etc"):  # all others by `admit`, above
        done = door.ssh(text)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), (text, done)
        assert done.stderr.startswith("owlbox: ")
    for text in (f"ask $(touch {mark}) `touch {mark}`; touch {mark}", f"ask hi\ntouch {mark}", f"ask hi > {mark}"):
        assert door.ssh(text).stdout == "Hoot hoot.\n"
    assert not mark.exists()
    asked = door.box.json("thread", "list", "--limit", "1")[0]["id"]
    assert door.box.events(asked)[0]["content"] == f"hi > {mark}"


def test_what_comes_through_the_pipe_is_added_and_an_open_pipe_does_not_hang(door: Door):
    assert door.ssh("ask", "slow one", text="about owls\n").returncode == 0
    run = door.box.json("thread", "list", "--limit", "1")[0]["id"]
    assert door.box.events(run)[0]["content"] == "slow one\n\nabout owls"
    began_s = monotonic_s()
    child = subprocess.Popen(door.command("ask", "hi"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.read() == b"Hoot hoot.\n"
        assert monotonic_s() - began_s < 60
    finally:
        end(child)
        if child.stdin is not None:
            child.stdin.close()


def test_no_forwarding_of_any_kind(door: Door):
    with socket.socket() as secret:
        secret.bind(("127.0.0.1", 0))
        secret.listen(4)
        secret.settimeout(0.5)
        inside = secret.getsockname()[1]
        assert door.ssh(options=("-W", f"127.0.0.1:{inside}")).returncode != 0
        for kind in ((f"-R{free_port()}:127.0.0.1:{inside}",), (f"-R{door.folder}/r.sock:127.0.0.1:{inside}",), ("-w0:0",)):
            done = door.ssh(options=("-N", "-oExitOnForwardFailure=yes", *kind))
            assert done.returncode == 255, (kind, done)
        local, socks = free_port(), free_port()
        path = door.box.runtime / "core.sock"
        forwards = ("-N", f"-L{local}:127.0.0.1:{inside}", f"-D{socks}", f"-L{door.folder}/l.sock:{path}")
        child = subprocess.Popen(door.command(options=forwards), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            until(lambda: is_listening(local) and is_listening(socks), "the client's ends listen")
            assert talk(("127.0.0.1", local), b"x") == b""
            hello = talk(("127.0.0.1", socks), b"\x05\x01\x00", b"\x05\x01\x00\x01\x7f\x00\x00\x01" + inside.to_bytes(2, "big"))
            assert hello in (b"\x05\x00", b"\x05\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00")
            assert talk(str(door.folder / "l.sock"), b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n') == b""
        finally:
            end(child)
        with pytest.raises(TimeoutError):
            secret.accept()
    shown = door.ssh("status", options=("-A", "-X"))
    assert shown.returncode == 0  # asked for and not given: the session itself works


def talk(address: object, *sent: bytes) -> bytes:
    """Everything that comes back until the other end hangs up."""
    kind = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    heard = b""
    with socket.socket(kind) as sock:
        sock.settimeout(60)
        sock.connect(address)  # type: ignore[arg-type]
        try:
            for data in sent:
                sock.sendall(data)
                heard += sock.recv(100)
            heard += sock.recv(100)
        except ConnectionError:
            pass
    return heard


def test_no_files_in_or_out(door: Door, tmp_path: Path):
    secret, target = tmp_path / "secret", tmp_path / "target"
    secret.write_text("s")
    to = ["-P", str(door.port), *door.options()]
    for way in (["scp", *to], ["scp", "-O", *to]):
        for pair in ((str(secret), f"{USER}@127.0.0.1:{target}"), (f"{USER}@127.0.0.1:{secret}", str(target))):
            done = subprocess.run([*way, *pair], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180)
            assert done.returncode != 0 and not target.exists(), done
    sftp = ["sftp", *to, "-b", "-", f"{USER}@127.0.0.1"]
    done = subprocess.run(sftp, input=f"put {secret} {target}\n", capture_output=True, text=True, timeout=180)
    assert done.returncode != 0 and not target.exists()


def test_a_password_does_not_open_it(door: Door):
    done = door.ssh(
        "status", options=("-oPubkeyAuthentication=no", "-oPreferredAuthentications=password,keyboard-interactive,none")
    )
    assert done.returncode == 255 and "Permission denied (publickey)" in done.stderr


# -- the screen ---------------------------------------------------------------------------------------


@needs("tmux")
def test_without_a_command_a_conversation_opens(door: Door):
    with looking(door) as screen:
        until(lambda: "owl" in screen.text().lower(), "the owl is on the screen")
        screen.type("hi there")
        until(lambda: "Hoot hoot." in screen.text(), "the answer is on the screen")
        lines = screen.text().splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80


# -- several people -----------------------------------------------------------------------------------


@pytest.mark.covers("A-171")
def test_two_people_with_keys_are_each_shown_their_own(door: Door):
    """At once, over one sshd and one user: what a person sees follows from their key, whatever they send along."""
    folder = door.folder
    for name in ("ann", "bob"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        assert door.box.run("people", "add-key", name, str(folder / f"{name}.pub")).returncode == 0
    ann, bob = door.of("ann"), door.of("bob")
    waiting = [
        subprocess.Popen(one.command("ask", f"I am {name}"), stdout=subprocess.PIPE) for name, one in (("ann", ann), ("bob", bob))
    ]
    assert [child.communicate(timeout=120)[0] for child in waiting] == [b"Hoot hoot.\n"] * 2
    assert ann.ssh("remember", "the safe is behind the clock").returncode == 0
    anns, bobs = (one.ssh("thread", "list", "--json").stdout for one in (ann, bob))
    assert "I am ann" in anns and "I am bob" not in anns
    assert "I am bob" in bobs and "I am ann" not in bobs
    mine = door.box.json("thread", "list", "--limit", "9")
    thread = next(one["id"] for one in mine if one["title"] == "I am ann")
    assert bob.ssh("thread", "view", thread).returncode == 3 and ann.ssh("thread", "view", thread).returncode == 0
    # Whatever bob sends: variables that speak for others, commands around the door, what only an admin may do.
    liar = {**door.box.environ, "OWLBOX_CONTEXT": "user:ann", "OWLBOX_SSH_KEY": (folder / "ann.pub").read_text(), "LC_X": "1"}
    sends = [f"-oSendEnv={name}" for name in ("OWLBOX_CONTEXT", "OWLBOX_SSH_KEY", "LC_X")]
    sent = subprocess.run(
        bob.command("thread", "list", options=tuple(sends)), env=liar, capture_output=True, text=True, timeout=120
    )
    assert "I am bob" in sent.stdout and "I am ann" not in sent.stdout
    for text in ("people keys", "people add-key bob x", "thread list --user ann", "OWLBOX_CONTEXT=user:ann owlbox thread list"):
        assert bob.ssh(text).returncode == 2, text
    assert bob.ssh("secret", "set", "llm/x", text="stolen").returncode == 4
    # A key that is taken away ends what its person has open, and opens nothing any more.
    asking = subprocess.Popen(bob.command("ask", "endless"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert asking.stdout is not None and asking.stdout.read(3) == b"one"
    assert door.box.run("people", "remove-key", str(folder / "bob.pub")).returncode == 0
    assert asking.wait(60) != 0
    refused = bob.ssh("status")
    assert refused.returncode == 255 and "Permission denied (publickey)" in refused.stderr
    assert ann.ssh("status").returncode == 0
    # Nor does that of somebody who is deactivated, until they are active again.
    asking = subprocess.Popen(ann.command("ask", "endless"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert asking.stdout is not None and asking.stdout.read(3) == b"one"
    assert door.box.run("people", "deactivate", "ann").returncode == 0
    assert asking.wait(60) != 0
    refused = ann.ssh("status")
    assert refused.returncode == 255 and "Permission denied (publickey)" in refused.stderr
    assert door.box.run("people", "activate", "ann").returncode == 0 and ann.ssh("status").returncode == 0


@needs("tmux")
def test_the_screen_of_a_person_shows_their_threads_alone(door: Door):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(door.folder / "eve")], check=True)
    assert door.box.run("people", "add-key", "eve", str(door.folder / "eve.pub")).returncode == 0
    assert door.ssh("ask", "a thing of the owner").returncode == 0
    with looking(door.of("eve")) as screen:
        until(lambda: "owl" in screen.text().lower(), "the owl is on the screen")
        screen.type("hi from eve")
        until(lambda: "Hoot hoot." in screen.text(), "the answer is on the screen")
    threads = door.box.json("thread", "list", "--user", "eve")
    assert [one["title"] for one in threads] == ["hi from eve"]
