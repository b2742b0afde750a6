"""What is typed as a command, executed: threads, branches, budget, decisions, sessions.

Asks the core through the panel it was typed in, and changes that panel only by what `ChatActions` offers. Which commands there
are, and what they are called, is in `commands`. Nothing typed here reaches a model, but for `/inject`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from appliance.clock import now_ms
from appliance.errors import BadInput, Conflict, NotFound, OwlError, Refused
from appliance.tui import commands
from appliance.tui.approvals import Waits
from appliance.tui.branch_tree import Choice, Place, SaidMessage, Tree, inherited
from appliance.tui.commands import COMMANDS, Command, Offer, near, offers
from appliance.tui.export_html import render_page
from appliance.tui.panel import Panel, ago, named
from appliance.tui.picker import Item, Picker
from appliance.tui.sender import Talk
from appliance.tui.status_view import status_lines
from appliance.tui.theme import CHOICES

LAST = 30  # threads that are offered
TREE_EVENTS = 2000  # of a thread, the newest ones, are looked through for messages to go back to
APPROVALS = {
    "ask": "it answers and changes nothing",
    "review": "changes and commands wait for your approval",
    "auto": "it does what the policy allows without asking",
}
FIRST = "send a message first: this thread is empty"
MORE_PAGES = 2**62
BRIEF = 60  # letters of a notification in a list


class ChatActions(Protocol):
    """What a command may do to the chat it was typed in, which builds the executor and so cannot be imported here."""

    talk: Talk

    async def open(self, talk: Talk) -> None:
        """Show another conversation."""
        ...

    def resume(self, thread: str, prompt: str = "", told: str = "") -> None:
        """Go on in a thread, at once with a prompt if there is one; `told` is for the bottom line."""
        ...

    def note(self, text: str) -> None:
        """Say something that is not part of the conversation."""
        ...

    def type_text(self, text: str) -> None:
        """Put a text into the input."""
        ...

    async def send(self, text: str) -> None:
        """Hand in a message."""
        ...

    def action_meter(self) -> None:
        """Show what fills the packet, or hide it."""
        ...


class Executor:
    """The commands of one chat."""

    def __init__(self, panel: Panel, chat: ChatActions, waits: Waits) -> None:
        self._panel = panel
        self._chat = chat
        self._waits = waits
        self._threads: list[dict[str, Any]] = []
        self._pools: list[str] = []
        self._roles: list[dict[str, Any]] = []
        self._skills: list[dict[str, Any]] = []

    async def execute(self, name: str, argument: str, *, is_running: bool = False) -> None:
        """Do what was typed; `is_running` while an answer is on its way."""
        name = "quit" if name == "exit" else name
        command = next((c for c in COMMANDS if c.name == name), None)
        if command is None and any(one["name"] == name for one in self._skills):
            await self._chat.send(f"/{name} {argument}".rstrip())
        elif command is None:
            self._ask_core("skill.list", {}, lambda found: self._call_skill(found, name, argument))
        elif command.needs_thread and not self._current_thread:
            self._say_line(f"/{name}: {FIRST}", True)
        elif command.needs_argument and not argument:
            self._say_line(f"/{name} needs {command.argument}: {command.about}", True)
        elif command.argument or not argument:
            await self._run_command(command, argument, is_running)
        else:
            self._say_line(f"/{name} takes nothing after it, not {argument[:40]!r}", True)

    async def _run_command(self, command: Command, argument: str, is_running: bool) -> None:
        if command.name == "new":
            await self._chat.open(Talk())
        elif command.name == "clear":
            await self._clear_thread()
        elif command.name == "inject" and not is_running:
            await self._chat.send(argument)
        elif command.name in ("help", "threads"):
            await self._panel.app.run_action(f"panel('{command.name}')")
        elif command.name == "group" and is_running:
            self._say_line("/group: an answer is being written; /stop ends it", True)
        elif command.name == "group":
            self._switch_group(argument)
        elif command.name in ("copy", "mouse"):
            await self._panel.app.run_action(f"{command.name}({argument!r})" if command.argument else command.name)
        elif command.name == "theme":
            await self._panel.app.run_action(f"theme({argument!r})")
        elif command.name == "quit":
            self._panel.app.exit()
        else:
            self._command_actions[command.name](argument)

    def _call_skill(self, found: list[dict[str, Any]], name: str, argument: str) -> None:
        """Send what calls a skill that was not known when it was typed; say so where there is none."""
        self._skills = called(found)
        if any(one["name"] == name for one in self._skills):
            self._panel.app.call_later(self._chat.send, f"/{name} {argument}".rstrip())
            return
        meant = f" (did you mean /{other}?)" if (other := near(name)) else ""
        self._say_line(f"unknown command /{name}{meant}; /help lists commands, /skills what else can be called", True)

    def _list_skills(self, found: list[dict[str, Any]]) -> None:
        """Those that can be called and how, then those that cannot be used and why."""
        missing = [f"✘ {one['name']} cannot be used: {one['missing']}" for one in found if one["missing"]]
        self._skills = called(found)
        width = max((len(one["usage"]) for one in self._skills), default=0)
        lines = [f"{one['usage']:<{width}}  {one['description']}" for one in self._skills]
        self._chat.note("\n".join([*lines, *missing]) or "no skills found")

    def _list_channels(self, found: list[dict[str, Any]]) -> None:
        self._chat.note("\n".join(map(channel_line, found)) or "no channels")

    def _list_notices(self, found: list[dict[str, Any]]) -> None:
        if not found:
            self._say_line("no notifications yet")
            return
        now = now_ms()
        items = [
            Item(
                str(place),
                " ".join(one["text"].split())[:BRIEF],
                f"{ago(one['at_ms'] or now, now)}{'' if one['run'] else ', no thread'}",
            )
            for place, one in enumerate(found)
        ]

        def go(place: str | None) -> None:
            if place is None:
                return
            one = found[int(place)]
            if one["run"] and one["run"] != self._current_thread:
                self._go_to_thread(one["run"])
            else:
                self._chat.note(one["text"])

        self._panel.app.push_screen(Picker("type to search notifications", items), go)

    def _tell_backup(self, made: dict[str, Any]) -> None:
        said = "saved" if made["is_new"] else "nothing has changed since the last backup"
        self._say_line(f"{said} {made['file']} ({made['size_bytes'] / 1_000_000:.1f} MB)")

    async def _clear_thread(self) -> None:
        """End the thread, which may be gone on with, and begin another one in the same session."""
        if thread := self._current_thread:
            told = f"thread {thread} has ended: /resume {thread} continues it"
            self._ask_core("thread.end", {"id": thread}, lambda _: self._say_line(told))
        await self._chat.open(Talk())

    @property
    def _command_actions(self) -> dict[str, Callable[[str], None]]:
        return {
            "resume": self._resume_thread,
            "skills": lambda _: self._ask_core("skill.list", {}, self._list_skills),
            "channels": lambda _: self._ask_core("channel.list", {}, self._list_channels),
            "notices": lambda _: self._ask_core("notice.list", {}, self._list_notices),
            "backup": lambda _: self._ask_core("backup.make", {}, self._tell_backup),
            "status": lambda _: self._ask_core("core.status", {}, self._show_status),
            "budget": lambda _: self._chat.action_meter(),
            "tree": lambda _: self._open_tree(),
            "fork": self._fork_thread,
            "rename": self._rename_thread,
            "compact": self._compact_thread,
            "waiting": lambda _: self._ask_core("entry.waiting", {"limit": 100}, self._go_to_waiting),
            "approve": self._approve_waiting,
            "reject": self._reject_waiting,
            "abort": lambda _: self._call_for_run("run.stop", lambda done: self._show_stopped(done["stopped"]), is_queue_kept=True),
            "stop": lambda _: self._call_for_run("run.stop", lambda done: self._show_stopped(done["stopped"])),
            "inject": lambda text: self._call_for_run(
                "run.inject", lambda _: self._say_line("the owl reads it at its next step"), text=text
            ),
            "approval": self._set_approval,
            "model": self._set_model,
            "role": self._set_role,
            "export": self._export_thread,
            "sessions": lambda _: self._ask_core("session.list", {"limit": 100}, self._show_sessions),
            "archive": lambda _: self._ask_core(
                "thread.view", {"id": self._current_thread, "after": MORE_PAGES}, self._archive_session
            ),
        }

    # -- completion ---------------------------------------------------------------------------------

    def offers(self, text: str) -> tuple[Offer, ...]:
        """What the input may become: a command, or what may follow some of them."""
        word, space, rest = text.partition(" ")
        if not space or "\n" in text:
            start = text[1:].lower()
            called = (
                [one for one in self._skills if one["name"].startswith(start)] if text[:1] == "/" and text == text.strip() else []
            )
            skills = (Offer(f"/{one['name']}", one["description"], one["waits"], one["usage"]) for one in called)
            return (*offers(text), *skills)
        if word == "/resume":
            wanted = [t for t in self._threads if t["id"] != self._current_thread and _matches_words(t, rest)]
            return tuple(Offer(f"/resume {t['id']}", ago(t["updated_ms"], now_ms()), shown=named(t)) for t in wanted)
        choices = {
            "/approval": APPROVALS,
            "/model": dict.fromkeys(self._pools, ""),
            "/role": {one["name"]: one["description"] for one in self._roles if one.get("may_answer", True)},
            "/theme": dict.fromkeys(CHOICES, ""),
        }.get(word, {})
        return tuple(Offer(f"{word} {one}", about) for one, about in choices.items() if one.startswith(rest) and one != rest)

    def prepare(self, text: str, then: Callable[[], None]) -> None:
        """Fetch what may follow a command as soon as it is typed; `then` when it has come."""
        # Letters may come all at once, as from a paste or over a slow line: then the slash alone is never seen.
        if text == "/" or (text.startswith("/") and text == text.strip() and not self._skills):
            self._ask_core("skill.list", {}, lambda found: self._keep_prepared("_skills", called(found), then))
        elif text == "/resume ":
            self._ask_core("thread.list", {"limit": LAST}, lambda found: self._keep_prepared("_threads", found, then))
        elif text == "/model ":
            self._ask_core("core.status", {}, lambda found: self._keep_prepared("_pools", list(found.get("pools", ())), then))
        elif text == "/role ":
            self._ask_core("role.list", {}, lambda found: self._keep_prepared("_roles", found, then))

    def hint(self, text: str) -> str:
        """What may follow what is typed; shown beside the input, the menu is closed then."""
        word, space, rest = text.partition(" ")
        usage = next((str(one["usage"]) for one in self._skills if f"/{one['name']}" == word), "")
        return usage if usage and space and not rest and not usage.endswith(word) else commands.hint(text)

    def _keep_prepared(self, name: str, found: Any, then: Callable[[], None]) -> None:
        setattr(self, name, found)
        then()

    # -- threads and branches -----------------------------------------------------------------------

    def _resume_thread(self, thread: str) -> None:
        if thread:
            self._go_to_thread(thread)
        else:
            self._ask_core("thread.list", {"type": "chat", "limit": 2}, self._resume_last)

    def _resume_last(self, threads: list[dict[str, Any]]) -> None:
        last = [t["id"] for t in threads if t["id"] != self._current_thread]
        if last:
            self._go_to_thread(last[0])
        else:
            self._say_line("there is no other thread yet")

    def _fork_thread(self, argument: str) -> None:
        number, _, name = argument.partition(" ")
        seq, name = (int(number), name.strip()) if number.isdecimal() else (0, argument)
        self._ask_core("run.fork", {"run": self._current_thread, "seq": seq, "alias": name.strip()}, self._show_fork)

    def _show_fork(self, made: dict[str, Any]) -> None:
        self._go_to_thread(made["id"], f"this is the new thread {made['alias']}; the old one stays as it is")

    def _rename_thread(self, name: str) -> None:
        self._call_for_run("run.config", self._show_rename, alias=name)

    def _show_rename(self, run: dict[str, Any]) -> None:
        self._chat.talk.title = named(run)
        self._say_line(f"this thread is {run['alias']} now: /resume {run['alias']} finds it")

    def _compact_thread(self, _: str) -> None:
        self._say_line("summarizing …")
        told = "events are now summarized for the model; here they stay in full"
        self._call_for_run("run.compact", lambda done: self._say_line(f"{done['covers']} {told}"))

    def _open_tree(self) -> None:
        thread, call = self._current_thread, self._panel.host.link.call

        def read() -> tuple[Any, list[SaidMessage]]:
            last = int(call("thread.view", {"id": thread, "after": MORE_PAGES})["thread"]["last_seq"])
            found: list[dict[str, Any]] = []
            start, has_more = max(0, last - TREE_EVENTS), True
            while has_more:
                page = call("thread.view", {"id": thread, "after": found[-1]["seq"] if found else start})
                found += page["events"]
                has_more = page["has_more"]
            return call("run.tree", {"run": thread}), spoken_lines(found, is_whole=not start)

        self._panel.work(read, lambda seen: self._panel.app.push_screen(Tree(thread, *seen), self._take_choice), about="tree")

    def _take_choice(self, choice: Choice | None) -> None:
        if choice is None:
            return
        place = choice.place
        if choice.is_fork and place.text and not place.seq:
            self._panel.run_worker(self._begin_anew(place.text))
        elif choice.is_fork:
            self._ask_core(
                "run.fork", {"run": place.run, "seq": place.seq}, lambda made: self._show_place(place, made["id"], made["alias"])
            )
        elif place.is_head:
            self._show_place(place, place.run)
        else:
            self._ask_core("run.jump", {"run": place.run, "seq": place.seq}, lambda _: self._show_place(place, place.run))

    async def _begin_anew(self, text: str) -> None:
        await self._chat.open(Talk())
        self._chat.type_text(text)

    def _show_place(self, place: Place, run: str, alias: str = "") -> None:
        told = "write it in other words; the old branch stays, /tree goes back to it" if place.text else ""
        self._go_to_thread(run, f"this is the new thread {alias}; the old one stays as it is" if alias else told)
        if place.text:
            self._chat.type_text(place.text)

    # -- what waits ---------------------------------------------------------------------------------

    def _approve_waiting(self, answer: str) -> None:
        if self._waits.question is not None and not answer:
            self._say_line("the owl asks: /approve ANSWER, or type the answer", True)
        elif not (self._waits.answer_question(answer) or self._waits.decide("accept", answer)):
            self._say_line("nothing to approve here; /waiting shows what waits elsewhere", True)

    def _reject_waiting(self, reason: str) -> None:
        if not self._waits.decide("reject", reason):
            self._say_line("nothing to approve here; /waiting shows what waits elsewhere", True)

    def _go_to_waiting(self, found: list[dict[str, Any]]) -> None:
        other = [one["run"] for one in found if one["run"] != self._current_thread]
        if self._waits.here is not None and len(other) < len(found):
            self._waits.focus()
        elif found:
            self._go_to_thread(other[0] if other else self._current_thread)
        else:
            self._say_line("nothing to approve")

    def _show_stopped(self, is_so: Any) -> None:
        self._say_line("stopped" if is_so else "nothing is being answered in this thread")

    # -- settings, sessions -------------------------------------------------------------------------

    def _set_approval(self, mode: str) -> None:
        if mode and mode not in APPROVALS:
            self._say_line(f"/approval {mode[:40]}: use ask, review or auto", True)
        elif mode:
            told = f"{mode}: {APPROVALS[mode]}, from the next step on"
            self._call_for_run("run.config", lambda _: self._say_line(told), settings={"approval": mode})
        else:
            self._call_for_run(
                "run.config", lambda run: self._say_line(self._describe_approval(str(run["settings"].get("approval", ""))))
            )

    @staticmethod
    def _describe_approval(mode: str) -> str:
        return f"approval {mode}: {APPROVALS.get(mode, '')}" if mode else "approval as configured; /approval ask, review or auto"

    def _set_model(self, pool: str) -> None:
        if pool:
            told = f"pool or route {pool} answers in this thread from now on"
            self._call_for_run("run.config", lambda _: self._say_line(told), settings={"model": pool})
        else:
            self._call_for_run(
                "run.config", lambda run: self._say_line(f"answered by {run['settings'].get('model') or 'the default pool'}")
            )

    def _set_role(self, role: str) -> None:
        def tell(run: dict[str, Any]) -> None:
            name = run["role"] or "assistant"
            self._chat.talk.role = run["role"]
            self._say_line(f"{name} answers in this thread{' from your next message on' if role else ''}")

        method, more = ("role.use", {"role": role}) if role else ("run.config", {})
        self._call_for_run(method, tell, **more)

    def _show_sessions(self, found: list[dict[str, Any]]) -> None:
        if not found:
            self._say_line("no sessions")
            return
        now = now_ms()
        items = [
            Item(one["id"], one["id"], f"{one['status']}, messages: {one['messages']}, {ago(one['last_active_ms'], now)}")
            for one in found
        ]

        def choose(session: str | None) -> None:
            if session is not None:
                self._ask_core("session.view", {"id": session}, self._enter_session)

        self._panel.app.push_screen(Picker("type to find a session", items), choose)

    def _enter_session(self, found: dict[str, Any]) -> None:
        """Go on in its newest thread."""
        if runs := sorted(found["runs"], key=lambda one: int(one["updated_ms"])):
            self._go_to_thread(runs[-1]["id"])
        else:
            self._say_line("nothing was said in this session yet")

    def _archive_session(self, found: dict[str, Any]) -> None:
        session = found["thread"]["session"]
        told = f"session {session} is archived; your next message reopens it"
        self._ask_core("session.change", {"id": session, "status": "archived"}, lambda _: self._say_line(told))

    def _show_status(self, status: dict[str, Any]) -> None:
        self._chat.note("\n".join(status_lines(status, self._waits.count, self._current_thread)))

    def _export_thread(self, name: str) -> None:
        thread, call = self._current_thread, self._panel.host.link.call
        if self._panel.host.link.is_for_another:
            there = f"/copy copies what was said, and `thread view {thread}` over ssh prints all of it"
            self._show_error(Refused("/export writes the file on this computer, not on the one you sit at", hint=there))
            return
        path = Path(name).expanduser() if name else Path.home() / f"owlbox-{thread[-8:]}.html"

        def write() -> int:
            events = inherited(call, thread) + read_events(call, thread)
            page = render_page(self._chat.talk.title, events)
            try:
                with open(path, "x" if not name else "w", encoding="utf-8", opener=_open_private) as file:
                    file.write(page)
            except FileExistsError:
                raise Conflict(f"{path} is there already", hint=f"/export {path} replaces it") from None
            except OSError as error:
                raise BadInput(f"{path} cannot be written: {error.strerror}", hint="/export FILE names another place") from None
            return len(events)

        self._panel.work(
            write, lambda count: self._say_line(f"wrote {count} events to {path}"), failed=self._show_error, about="export"
        )

    def _switch_group(self, group: str) -> None:
        link, context = self._panel.host.link, f"group:{group}" if group else ""

        def check() -> list[str]:
            known = link.call("group.list")
            if group and group not in known:
                there = ", ".join(known) or "none yet: owlbox people group makes one"
                raise NotFound(f"there is no group {group[:40]!r}", hint=f"there is {there}")
            return sorted(known)

        async def switch(known: list[str]) -> None:
            if not group and not link.context.startswith("group:"):
                self._say_line(f"groups: {', '.join(known) or 'none'}; /group ID works for one")
                return
            await self._chat.open(Talk())
            link.act_for(context)
            self._say_line(f"this screen works for group {group} now, until /group alone" if group else "for yourself again")

        self._panel.work(check, switch, failed=self._show_error, about="group")

    # -- inside -------------------------------------------------------------------------------------

    @property
    def _current_thread(self) -> str:
        return self._chat.talk.thread

    def _go_to_thread(self, thread: str, told: str = "") -> None:
        self._chat.resume(thread, "", told)

    def _call_for_run(self, method: str, then: Callable[[Any], object], **params: Any) -> None:
        self._ask_core(method, {"run": self._current_thread, **params}, then)

    def _ask_core(self, method: str, params: dict[str, Any], then: Callable[[Any], object]) -> None:
        self._panel.ask(method, params, then, failed=self._show_error)

    def _show_error(self, error: OwlError) -> None:
        self._say_line(str(error), True)

    def _say_line(self, text: str, is_error: bool = False) -> None:
        self._panel.host.say(text, is_error)


def channel_line(channel: dict[str, Any]) -> str:
    """A channel in one line: its state, what it took and sent, and its problem."""
    counts = ", ".join(f"{channel[name]} {name}" for name in ("taken", "refused", "sent", "failed") if channel.get(name))
    about = "; ".join(filter(None, (counts, channel["problem"], *channel.get("warnings", ()))))
    return f"{channel['name']:<10} {channel['state']}{f', {about}' if about else ''}"


def read_events(call: Callable[[str, dict[str, Any]], Any], thread: str) -> list[dict[str, Any]]:
    """Every event of a thread's present branch."""
    found: list[dict[str, Any]] = []
    has_more = True
    while has_more:
        page = call("thread.view", {"id": thread, "after": found[-1]["seq"] if found else 0, "turns": 1})
        found, has_more = found + page["events"], page["has_more"]
    return found


def _open_private(path: str, flags: int) -> int:
    """What was said is for nobody else on this computer."""
    return os.open(path, flags, 0o600)


def spoken_lines(events: list[dict[str, Any]], *, is_whole: bool) -> list[SaidMessage]:
    """What a person said on a branch, each with the number of the event before it, 0 for the beginning of the thread.

    Of a part of a branch the first event is left out: nobody knows what was before it.
    """
    found, before = [], 0 if is_whole else None
    for event in events:
        if event["kind"] == "message" and event["role"] == "user" and before is not None:
            found.append(SaidMessage(event["seq"], before, event["content"]))
        before = event["seq"]
    return found


def _matches_words(thread: dict[str, Any], words: str) -> bool:
    text = f"{named(thread)} {thread['id']}".lower()
    return all(word in text for word in words.lower().split())


def called(skills: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The skills that can be called as `/name`."""
    return [one for one in skills if not one["is_reserved"]]
