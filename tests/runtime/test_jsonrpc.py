"""Frames by their bytes, errors that cross the socket unchanged, and a wire cut in every way."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from needs import needs

from appliance import errors
from appliance.errors import BadInput, Lost, NotFound, OwlError, Refused, TooLarge
from appliance.runtime import jsonrpc
from appliance.runtime.jsonrpc import MAX_FRAME_BYTES, Wire, decode, encode

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.text(max_size=20)
    | st.sampled_from(["\ud800", "\u2028", "\n", "é"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def tree(root: type[OwlError] = OwlError) -> list[type[OwlError]]:
    return [root, *(c for child in root.__subclasses__() for c in tree(child) if c.__module__ == errors.__name__)]


@pytest.fixture
def pair() -> Iterator[tuple[Wire, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    theirs.settimeout(60)
    ours.settimeout(60)
    yield Wire(ours), theirs
    ours.close()
    theirs.close()


def test_a_frame_is_one_line_of_compact_utf_8() -> None:
    frame = {"jsonrpc": "2.0", "id": 1, "method": "hoot", "params": {"text": "Zoë\n✓"}}
    assert encode(frame) == '{"jsonrpc":"2.0","id":1,"method":"hoot","params":{"text":"Zoë\\n✓"}}\n'.encode()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(max_size=8), ANYTHING, max_size=5))
def test_any_frame_comes_back_as_it_was(frame: dict[str, Any]) -> None:
    data = encode(frame)
    assert data.endswith(b"\n") and data.count(b"\n") == 1
    assert decode(data[:-1]) == frame


def test_lone_surrogates_come_back_as_they_were() -> None:
    assert decode(encode({"text": "a\ud800b"})) == {"text": "a\ud800b"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "frame is not JSON"),
        (b"hello", "frame is not JSON"),
        (b'{"a": "\xff"}', "frame is not JSON"),
        (b"\x00\x00", "frame is not JSON"),
        (b"[" * 200_000, "frame is not JSON"),
        (b'[{"jsonrpc": "2.0"}]', "frame must be an object, got list"),
        (b"1", "frame must be an object, got int"),
        (b"null", "frame must be an object, got NoneType"),
    ],
)
def test_bytes_that_are_no_frame_are_bad_input(line: bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        decode(line)


def test_a_frame_over_the_limit_is_not_encoded() -> None:
    fits = {"t": "x" * (MAX_FRAME_BYTES - len('{"t":""}\n'))}
    assert len(encode(fits)) == MAX_FRAME_BYTES
    with pytest.raises(TooLarge, match=f"{MAX_FRAME_BYTES + 1} bytes"):
        encode({"t": fits["t"] + "x"})


@pytest.mark.parametrize("kind", tree(), ids=lambda kind: kind.__name__)
def test_every_error_crosses_the_wire_as_the_same_class(kind: type[OwlError]) -> None:
    frame = decode(encode(jsonrpc.error_frame(7, kind("went wrong", hint="do this"))))
    assert frame["id"] == 7 and frame["error"]["data"]["status"] == kind.status
    with pytest.raises(OwlError) as caught:
        jsonrpc.raise_error(frame["error"])
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.hint, caught.value.exit_code) == ("went wrong", "do this", kind.exit_code)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": -32601, "message": "no such method"}, NotFound),
        ({"code": -32000, "message": "odd", "data": {"outcome": "never-heard-of"}}, OwlError),
        ({"code": -32000, "message": "bare", "data": None}, OwlError),
        ({}, OwlError),
    ],
)
def test_errors_of_strangers_are_raised_too(error: dict[str, Any], kind: type[OwlError]) -> None:
    with pytest.raises(OwlError) as caught:
        jsonrpc.raise_error(error)
    assert type(caught.value) is kind


def test_frames_are_read_however_they_are_cut(pair: tuple[Wire, socket.socket]) -> None:
    wire, other = pair
    frames = [{"n": n, "text": "é" * n} for n in range(5)]
    data = b"".join(encode(f) for f in frames)

    def send() -> None:
        for i in range(len(data)):
            other.sendall(data[i : i + 1])
        other.sendall(data + b'\n  \n{"cut": "off')
        other.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    assert [decode(line) for line in wire.lines() if isinstance(line, bytes)] == frames * 2
    sender.join(60)


@pytest.mark.parametrize("extra", [1, MAX_FRAME_BYTES])
def test_an_oversized_frame_is_reported_with_its_size_and_the_next_one_read(pair: tuple[Wire, socket.socket], extra: int) -> None:
    wire, other = pair
    size = MAX_FRAME_BYTES + extra
    sender = threading.Thread(target=other.sendall, args=(b"x" * size + b"\n" + b'{"n": 1}\n',))
    sender.start()
    lines = wire.lines()
    first = next(lines)
    assert isinstance(first, TooLarge) and f"frame of {size} bytes" in first.message
    assert next(lines) == b'{"n": 1}'
    sender.join(60)


def test_a_time_out_loses_no_bytes(pair: tuple[Wire, socket.socket]) -> None:
    wire, other = pair
    wire.sock.settimeout(0.05)
    other.sendall(b'{"half":')
    with pytest.raises(TimeoutError):
        next(wire.lines())
    other.sendall(b" 1}\n")
    assert next(wire.lines()) == b'{"half": 1}'


def test_a_time_out_in_an_oversized_frame_does_not_make_its_rest_a_frame(pair: tuple[Wire, socket.socket]) -> None:
    wire, other = pair
    wire.sock.settimeout(0.3)
    sender = threading.Thread(target=other.sendall, args=(b"x" * (MAX_FRAME_BYTES + 1),))
    sender.start()
    with pytest.raises(TimeoutError):
        next(wire.lines())
    while sender.is_alive():  # it was slower than our patience
        with pytest.raises(TimeoutError):
            next(wire.lines())
    with pytest.raises(TimeoutError):
        next(wire.lines())
    other.sendall(b'{"n": 1}\n{"n": 2}\n')
    wire.sock.settimeout(60)
    lines = wire.lines()
    assert isinstance(next(lines), TooLarge) and next(lines) == b'{"n": 2}'


def test_sending_to_nobody_is_lost_and_closes(pair: tuple[Wire, socket.socket]) -> None:
    wire, other = pair
    other.close()
    with pytest.raises(Lost, match="connection lost while sending"):
        for _ in range(3):
            wire.send({"n": 1})
    wire.close()
    wire.close()
    assert list(wire.lines()) == []


def test_frames_of_several_threads_do_not_mix(pair: tuple[Wire, socket.socket]) -> None:
    wire, other = pair
    threads = [threading.Thread(target=lambda i=i: [wire.send({"n": i, "t": "x" * 20_000}) for _ in range(10)]) for i in range(4)]
    for thread in threads:
        thread.start()
    lines = Wire(other).lines()
    got = [decode(line)["n"] for line in (next(lines) for _ in range(40)) if isinstance(line, bytes)]
    assert sorted(got) == sorted(i for i in range(4) for _ in range(10))
    for thread in threads:
        thread.join(60)


def test_a_reader_sees_the_end_although_the_socket_s_number_has_another_owner_at_once() -> None:
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change places between a number and the call that is made with it
    try:
        for haste in range(200):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            ours.settimeout(60)
            wire = Wire(ours)
            reader = threading.Thread(target=list, args=(wire.lines(),), daemon=True)
            reader.start()
            for _ in range(haste % 60):
                pass
            wire.close()
            others = socket.socketpair()
            wire.wait_at_most(1)  # says nothing
            reader.join(60)
            assert not reader.is_alive(), "it waits for a socket that is not its own"
            assert ours.fileno() == -1
            for one in (theirs, *others):
                one.close()
    finally:
        sys.setswitchinterval(usual_s)


def test_a_path_the_kernel_refuses_is_refused_with_its_length() -> None:
    assert jsonrpc.check_path("/tmp/" + "x" * 102) == "/tmp/" + "x" * 102
    with pytest.raises(BadInput, match="108 bytes, the kernel allows 107"):
        jsonrpc.check_path("/tmp/" + "é" * 51 + "x")
    with pytest.raises(Lost, match="nothing answers at /tmp/owl-nobody"):
        jsonrpc.connect("/tmp/owl-nobody.sock")


@needs(root=True)  # to become a second user
@pytest.mark.parametrize(("owner", "is_fine"), [(65534, True), (12345, False)])
def test_a_stranger_at_the_other_end_is_refused(runtime: Path, owner: int, is_fine: bool) -> None:
    path = runtime / "s.sock"
    runtime.chmod(0o777)
    code = "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()"
    code += "; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        os.chown(runtime, owner, -1)
        if is_fine:
            jsonrpc.connect(str(path)).close()
        else:
            with pytest.raises(Refused, match="user 65534 answers at"):
                jsonrpc.connect(str(path))


def test_the_kernel_says_who_is_at_the_other_end(pair: tuple[Wire, socket.socket]) -> None:
    peer = pair[0].peer()
    assert (peer.pid, peer.uid, peer.gid) == (os.getpid(), os.getuid(), os.getgid())
