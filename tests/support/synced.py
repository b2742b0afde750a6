"""Calls every method of the table that writes, in a process whose database files are watched; run as a program on a home.

Prints, as JSON, for each call how many times it wrote to the log of the database and whether all of that was synced when the
call returned. Only writes of the thread that serves the call, and of the tools it calls, count: others go on by themselves.
"""

import base64
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import apsw

from appliance.clock import now_ms
from appliance.console.connect import InProcess
from appliance.knowledge.views import Actor
from appliance.matrix.device_book import Device, DeviceBook
from appliance.runtime.paths import Home
from appliance.sessions.outbox import Notification
from appliance.work.jobs import JobOrder

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJxkbuM7qc7qUmAMcwjSaxEP3yFcYjnLbVsWzad6eN+w bob@laptop"
SERVING = ("MainThread", "tool", "waiting")
# Read, or wait for something to read.
READS = """
model.names model.chat model.embed
channel.devices channel.list channel.test group.rooms login.check login.list call.list event.follow event.publish
audit.list backup.list core.health core.metrics core.status document.list document.view entry.history entry.list entry.view
entry.waiting grant.list
group.list heartbeat.view history.list
ingest.chosen ingest.known ingest.page ingest.part ingest.piece ingest.tree job.list job.view
mcp.servers mcp.index mcp.ping memory.list memory.topics memory.view
model.plan model.providers model.bench notice.follow notice.list outbox.list
people.keys people.list people.show push.key push.list
policy.show policy.test policy.reload prompt.size role.list role.view run.packet run.path run.proposal
run.state run.tree run.view secret.address secret.list secret.reveal session.export session.list session.view skill.fetch
skill.list skill.review skill.skipped skill.view sql.query
stream.list thread.follow thread.list thread.view tool.list usage.requests usage.sums worker.list worker.log
worker.view
""".split()
# What they change is no row of ours, or not by the time they answer: why.
ELSEWHERE = {
    "webhook.receive": "a message, as message.send accepts it; needs a channel that is switched on",
    **dict.fromkeys(("push.subscribe", "push.unsubscribe"), "a subscription; needs a channel that is switched on"),
    **dict.fromkeys(("secret.remove", "secret.rotate", "secret.set", "secret.unlock"), "vault"),
    **dict.fromkeys(("model.reset", "model.remote", "core.broker", "core.reload", "core.shutdown", "queue.changed"), "processes"),
    **dict.fromkeys(("mcp.add", "mcp.remove", "mcp.auth", "mcp.deauth"), "owlbox.toml and the vault"),
    "document.write": "a file of box/",
    "backup.make": "a file in backups/",
    "upload.keep": "a file of the session",
    "skill.prepare": "a folder of the home, made by other programs",
    "interview.answer": "files of box/",
    **dict.fromkeys(("mcp.read", "mcp.task"), "another server"),
    **dict.fromkeys(("run.ask", "run.act"), "need a model's plan first; accept as message.send does"),
    **dict.fromkeys(("run.compact", "worker.start", "worker.stop"), "another thread or process writes"),
}


class Files(apsw.VFS):
    """Every file of SQLite, watched."""

    def __init__(self) -> None:
        self.unsynced: set[str] = set()
        self.writes = 0
        super().__init__("watched", "", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> "File":
        return File(self, name, flags)


class File(apsw.VFSFile):
    """One of them."""

    def __init__(self, files: Files, name: Any, flags: list[int]) -> None:
        self.files = files
        self.name = name.filename() if hasattr(name, "filename") else str(name)
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.name.endswith("-wal") and threading.current_thread().name.startswith(SERVING):
            self.files.unsynced.add(self.name)
            self.files.writes += 1
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self.files.unsynced.discard(self.name)


def main() -> None:
    """Do it."""
    files = Files()
    table = InProcess(Home(Path(sys.argv[1])), os.environ)
    core, found = table._core, {}

    def call(method: str, **params: Any) -> Any:
        files.unsynced.clear()
        files.writes = 0
        given = table.call(method, params)
        before = found.get(method, {"writes": 0, "is_synced": True})
        is_synced = before["is_synced"] and not files.unsynced
        found[method] = {"writes": before["writes"] + files.writes, "is_synced": is_synced}
        return given

    call("session.create", channel="local", sender="ada")
    for status in ("archived", "active", "closed"):
        call("session.change", id="local:ada", status=status)
    call("session.delete", id="local:ada")
    run = call("message.send", text="hello", wait=False)["run"]
    call("run.config", run=run, alias="first")
    call("run.config", run=run, settings={"temperature": 0.3})
    call("run.fork", run=run, alias="aside")
    call("role.use", run="aside", role="researcher")
    call("run.jump", run="aside", seq=0)
    call("run.inject", run="aside", text="more")
    call("run.write", ref="run://aside", attributes={"state": "cancelled"})
    call("run.stop", run=run, is_queue_kept=True)
    call("run.stop", run=run)
    call("entry.set", ref="memory://tea", body="green", run=run)
    call("entry.get", ref="memory://tea", run=run)
    call("entry.update", text="tea noted", run=run)
    call("entry.cp", ref="memory://tea", target="memory://cup")
    call("entry.mv", ref="memory://cup", target="memory://mug")
    call("entry.rm", ref="memory://mug")
    call("entry.trust", ref="memory://tea", hash=call("entry.view", ref="memory://tea")["hash"])
    for action in ("accept", "reject"):
        core.verbs.perform(Actor("model", run, *core.runs.moment(run)), "set", {"ref": "plan.md", "body": action})
        [waiting] = table.call("entry.waiting", {"run": run})
        call("run.resolve", ref=waiting["ref"], run=run, action=action)
    call("tool.call", name="remember", arguments={"text": "tea is green"})
    call("tool.call", name="create_task", arguments={"name": "pour"})
    for method, more in (("append", {"text": "x"}), ("complete", {}), ("complete", {"reason": "x"}), ("cancel", {})):
        me = Actor("model", run, *core.runs.moment(run))
        log = core.verbs.record(me, "sh", "echo", "echo").data["proposals"][0]
        path = core.commands.streams.begin(me, "sh", log).output
        call(f"stream.{method}", run=run, path=path, **more)
    call("run.undo", run=run)
    data = base64.b64encode(b"leaves").decode()
    table.call("ingest.piece", {"key": "k", "data": data})
    call("ingest.keep", items=[{"ref": "pantry:/tea.md", "body_key": "k"}])
    grant = call("grant.add", kind="web", target="example.org", origins=["web:*"])
    call("grant.revoke", id=grant["id"])
    call("notify.mute", until_ms=now_ms() + 3_600_000)
    call("notify.mute", until_ms=0)
    call("people.add", person="bob")
    call("people.link", identity="email/bob@example.org", person="bob")
    call("people.link", identity="email/bob@example.org")
    call("people.key", key=call("people.key", person="bob", key=KEY)["fingerprint"])
    call("group.change", group="home", add=["bob"])
    call("group.change", group="home", is_active=False)
    call("group.change", group="home", room="matrix/!tea:example.org")
    invite = call("login.invite", person="bob")["invite"]
    call("login.leave", token=call("login.enter", invite=invite)["token"])
    call("login.token", name="kitchen", person="bob")
    call("login.set_password", person="bob", password="ten letters or more")
    call("login.enter", name="bob", password="ten letters or more")
    call("login.end", id=table.call("login.list", {"person": "bob"})[0]["id"])
    call("people.activate", person="bob", is_active=False)
    call("people.remove", person="bob")
    DeviceBook(core.store).keep("@ann:example.org", "", {"phone": Device("@ann:example.org", "phone", "curve", "signing")})
    call("channel.verify", fingerprint="signing")
    call("memory.write", text="The kettle is blue.", topic="kitchen")
    call("memory.move_topic", old="kitchen", new="house")
    call("memory.import", file=table.call("memory.view", {"key": table.call("memory.list", {})[0]["ref"]})["file"])
    call("memory.forget", key=table.call("memory.list", {})[0]["ref"])
    call("skill.create", name="tea", description="Make tea.", body="Boil.")
    call("skill.trust", name="tea", hash=call("skill.view", name="tea")["hash"])
    call("skill.prepare", name="tea")
    call("skill.call", name="tea")
    text = base64.b64encode(b"---\nname: milk\ndescription: Warm milk.\n---\nWarm it.\n").decode()
    call("skill.install", files={"SKILL.md": text}, folder="milk")
    call("skill.remove", name="milk")
    call("heartbeat.beat")
    core.outbox.put(Notification("nap", core.runs.session(core.runs.get(run).session)["person"], "nap"))
    call("notice.seen", keys=[one["key"] for one in call("notice.list", is_waiting=True)])
    call("policy.set", session="local:bob", document='preset = "permissive"\n')
    call("policy.set", session="local:bob")
    job = core.jobs.add(JobOrder("worker", "look", session=core.runs.get(run).session, priority="background"))
    call("job.stop", id=job.id)
    lines: list[str] = []
    table.call("session.export", {"id": core.runs.get(run).session}, lambda name, value: lines.append(value["text"]))
    call("thread.end", id="aside")
    call("thread.delete", id="aside")
    call("session.import", lines=lines)
    worker = table.call("worker.start", {"is_persistent": True})
    call("worker.stop", id=worker["id"], is_forced=True)
    call("worker.reap")
    known = {*READS, *ELSEWHERE, *found}
    print(json.dumps({"found": found, "missing": sorted({*core.table} - known), "gone": sorted(known - {*core.table})}))
    table.close()


if __name__ == "__main__":
    main()
