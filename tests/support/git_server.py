"""Git repositories over HTTP on loopback: the real `git http-backend` behind a small server, and repositories to serve."""

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LIMIT_S = 30.0


def git(*words: str, folder: Path) -> str:
    """What git says, without settings of the person who runs the tests."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=owl", "-c", "user.email=owl@example.org", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    return done.stdout.strip()


def make_repository(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    """A repository of one commit, whose branch is `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    git("init", "-q", "-b", "main", folder=folder)
    commit(folder, files)
    return folder


def commit(folder: Path, files: Mapping[str, bytes | str]) -> str:
    """One more commit; its name."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content.encode() if isinstance(content, str) else content)
    git("add", "-A", folder=folder)
    git("commit", "-q", "-m", "change", folder=folder)
    return git("rev-parse", "HEAD", folder=folder)


class _Handler(BaseHTTPRequestHandler):
    """Hands requests to `git http-backend` as its manual describes."""

    server: "GitServer"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(f"{self.command} {self.path}")
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HOME": str(self.server.root),
        }
        environ |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        done = subprocess.run(["git", "http-backend"], input=body, env=environ, capture_output=True, timeout=LIMIT_S)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(lines.pop("Status", "200 OK").split()[0]))
        for name, value in lines.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.server.cut_at is not None and self.command == "POST":
            answer = answer[: self.server.cut_at]
        self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


class GitServer(ThreadingHTTPServer):
    """Serves every repository below a folder; with `cut_at` a pack ends after so many bytes."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.cut_at: int | None = None
        self.asked: list[str] = []

    def url(self, name: str) -> str:
        """The URL of a repository."""
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


@contextmanager
def serving_git(root: Path) -> Iterator[GitServer]:
    """A server for as long as the block lasts."""
    server = GitServer(root)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
