"""What is typed as a command, executed: threads, branches, budget, decisions, sessions.

Asks the core through the panel it was typed in, and changes that panel only by what `ChatActions` offers. Which commands there
are, and what they are called, is in `commands`. Nothing typed here reaches a model, but for `/inject`.
"""

from collections.abc import Callable
from typing import Any, Protocol

from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.tui.approvals import Waits
from appliance.tui.branch_tree import Choice, Place, Said, Tree
from appliance.tui.commands import COMMANDS, Command, Offer, near, offers
from appliance.tui.panel import Panel, ago, named
from appliance.tui.sender import Talk

LAST = 30  # threads that are offered
TREE_EVENTS = 2000  # of a thread, the newest ones, are looked through for messages to go back to
APPROVALS = {
    "ask": "nothing is changed, only answered",
    "review": "changes and commands wait for your word",
    "auto": "it does what the policy allows, unasked",
}
FIRST = "say something first: this thread has not begun"
MORE_PAGES = 2**62


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
        self._skills: list[dict[str, Any]] = []

    async def execute(self, name: str, argument: str, *, is_running: bool = False) -> None:
        """Do what was typed; `is_running` while an answer is on its way."""
        name = "quit" if name == "exit" else name
        command = next((c for c in COMMANDS if c.name == name), None)
        if command is None and any(one["name"] == name for one in self._skills):
            await self._chat.send(f"/{name} {argument}".rstrip())
        elif command is None:
            self._ask("skill.offers", {}, lambda found: self._call_skill(found, name, argument))
        elif command.needs_thread and not self._thread:
            self._say(f"/{name}: {FIRST}", True)
        elif command.needs_argument and not argument:
            self._say(f"/{name} needs {command.argument}: {command.about}", True)
        elif command.argument or not argument:
            await self._do(command, argument, is_running)
        else:
            self._say(f"/{name} takes nothing after it, not {argument[:40]!r}", True)

    async def _do(self, command: Command, argument: str, is_running: bool) -> None:
        if command.name == "new":
            await self._chat.open(Talk())
        elif command.name == "clear":
            await self._clear()
        elif command.name == "inject" and not is_running:
            await self._chat.send(argument)
        elif command.name in ("help", "threads"):
            await self._panel.app.run_action(f"panel('{command.name}')")
        elif command.name == "quit":
            self._panel.app.exit()
        else:
            self._known[command.name](argument)

    def _call_skill(self, found: list[dict[str, Any]], name: str, argument: str) -> None:
        """Send what calls a skill that was not known when it was typed; say so where there is none."""
        self._skills = found
        if any(one["name"] == name for one in found):
            self._panel.app.call_later(self._chat.send, f"/{name} {argument}".rstrip())
            return
        meant = f" (did you mean /{other}?)" if (other := near(name)) else ""
        self._say(f"unknown command /{name}{meant}; /help lists commands, /skills what else can be called", True)

    def _list_skills(self, found: list[dict[str, Any]]) -> None:
        self._skills = found
        width = max((len(one["usage"]) for one in found), default=0)
        self._chat.note("\n".join(f"{one['usage']:<{width}}  {one['description']}" for one in found) or "no skills found")

    async def _clear(self) -> None:
        """End the thread, which may be gone on with, and begin another one in the same session."""
        if thread := self._thread:
            told = f"thread {thread} is ended: /resume {thread} goes on with it"
            self._ask("thread.end", {"id": thread}, lambda _: self._say(told))
        await self._chat.open(Talk())

    @property
    def _known(self) -> dict[str, Callable[[str], None]]:
        return {
            "resume": self._resume,
            "skills": lambda _: self._ask("skill.offers", {}, self._list_skills),
            "status": lambda _: self._ask("core.status", {}, self._status),
            "budget": lambda _: self._chat.action_meter(),
            "tree": lambda _: self._tree(),
            "fork": self._fork,
            "rename": self._rename,
            "compact": self._compact,
            "waiting": lambda _: self._ask("entry.waiting", {"limit": 100}, self._go_to_waiting),
            "approve": self._approve,
            "reject": self._reject,
            "abort": lambda _: self._run("run.abort", lambda done: self._ended(done["aborted"])),
            "stop": lambda _: self._run("run.stop", lambda done: self._ended(done["stopped"])),
            "inject": lambda text: self._run("run.inject", lambda _: self._say("the owl hears it at its next step"), text=text),
            "approval": self._approval,
            "model": self._model,
            "offer": self._offer,
            "sessions": lambda _: self._ask("session.list", {"limit": 100}, self._sessions),
            "archive": lambda _: self._ask("thread.view", {"id": self._thread, "after": MORE_PAGES}, self._archive),
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
            wanted = [t for t in self._threads if t["id"] != self._thread and _fits(t, rest)]
            return tuple(Offer(f"/resume {t['id']}", ago(t["updated_ms"], now_ms()), shown=named(t)) for t in wanted)
        choices = {
            "/approval": APPROVALS,
            "/offer": {"yes": "fetch it", "no": "do not ask again"},
            "/model": dict.fromkeys(self._pools, ""),
        }.get(word, {})
        return tuple(Offer(f"{word} {one}", about) for one, about in choices.items() if one.startswith(rest) and one != rest)

    def prepare(self, text: str, then: Callable[[], None]) -> None:
        """Fetch what may follow a command as soon as it is typed; `then` when it has come."""
        if text == "/":
            self._ask("skill.offers", {}, lambda found: self._prepared("_skills", found, then))
        elif text == "/resume ":
            self._ask("thread.list", {"limit": LAST}, lambda found: self._prepared("_threads", found, then))
        elif text == "/model ":
            self._ask("core.status", {}, lambda found: self._prepared("_pools", list(found.get("pools", ())), then))

    def _prepared(self, name: str, found: Any, then: Callable[[], None]) -> None:
        setattr(self, name, found)
        then()

    # -- threads and branches -----------------------------------------------------------------------

    def _resume(self, thread: str) -> None:
        if thread:
            self._go(thread)
        else:
            self._ask("thread.list", {"type": "chat", "limit": 2}, self._resume_last)

    def _resume_last(self, threads: list[dict[str, Any]]) -> None:
        last = [t["id"] for t in threads if t["id"] != self._thread]
        if last:
            self._go(last[0])
        else:
            self._say("there is no other thread yet")

    def _fork(self, argument: str) -> None:
        number, _, name = argument.partition(" ")
        seq, name = (int(number), name.strip()) if number.isdecimal() else (0, argument)
        self._ask("run.fork", {"run": self._thread, "seq": seq, "alias": name.strip()}, self._forked)

    def _forked(self, made: dict[str, Any]) -> None:
        self._go(made["id"], f"this is the new thread {made['alias']}; the old one stays as it is")

    def _rename(self, name: str) -> None:
        self._run("run.rename", self._renamed, alias=name)

    def _renamed(self, run: dict[str, Any]) -> None:
        self._chat.talk.title = named(run)
        self._say(f"this thread is {run['alias']} now: /resume {run['alias']} finds it")

    def _compact(self, _: str) -> None:
        self._say("summarizing …")
        told = "events are now in short for the model; here they stay as they are"
        self._run("run.compact", lambda done: self._say(f"{done['covers']} {told}"))

    def _tree(self) -> None:
        thread, call = self._thread, self._panel.host.link.call

        def read() -> tuple[Any, list[Said]]:
            last = int(call("thread.view", {"id": thread, "after": MORE_PAGES})["thread"]["last_seq"])
            found: list[dict[str, Any]] = []
            start, has_more = max(0, last - TREE_EVENTS), True
            while has_more:
                page = call("thread.view", {"id": thread, "after": found[-1]["seq"] if found else start})
                found += page["events"]
                has_more = page["has_more"]
            return call("run.tree", {"run": thread}), said(found, is_whole=not start)

        self._panel.work(read, lambda seen: self._panel.app.push_screen(Tree(thread, *seen), self._chosen), about="tree")

    def _chosen(self, choice: Choice | None) -> None:
        if choice is None:
            return
        place = choice.place
        if choice.is_fork and place.text and not place.seq:
            self._panel.run_worker(self._begin_anew(place.text))
        elif choice.is_fork:
            self._ask(
                "run.fork", {"run": place.run, "seq": place.seq}, lambda made: self._arrived(place, made["id"], made["alias"])
            )
        elif place.is_head:
            self._arrived(place, place.run)
        else:
            self._ask("run.jump", {"run": place.run, "seq": place.seq}, lambda _: self._arrived(place, place.run))

    async def _begin_anew(self, text: str) -> None:
        await self._chat.open(Talk())
        self._chat.type_text(text)

    def _arrived(self, place: Place, run: str, alias: str = "") -> None:
        told = "say it in other words: the old branch stays, /tree goes back to it" if place.text else ""
        self._go(run, f"this is the new thread {alias}; the old one stays as it is" if alias else told)
        if place.text:
            self._chat.type_text(place.text)

    # -- what waits ---------------------------------------------------------------------------------

    def _approve(self, answer: str) -> None:
        if self._waits.question is not None and not answer:
            self._say("the owl asks: /approve ANSWER, or type the answer", True)
        elif not (self._waits.take(answer) or self._waits.decide("accept", answer)):
            self._say("nothing waits here; /waiting goes to what waits elsewhere", True)

    def _reject(self, reason: str) -> None:
        if not self._waits.decide("reject", reason):
            self._say("nothing waits here; /waiting goes to what waits elsewhere", True)

    def _go_to_waiting(self, found: list[dict[str, Any]]) -> None:
        other = [one["run"] for one in found if one["run"] != self._thread]
        if self._waits.here is not None and len(other) < len(found):
            self._waits.focus()
        elif found:
            self._go(other[0] if other else self._thread)
        else:
            self._say("nothing waits for a decision")

    def _ended(self, is_so: Any) -> None:
        self._say("stopped" if is_so else "nothing is being answered in this thread")

    # -- settings, sessions -------------------------------------------------------------------------

    def _approval(self, mode: str) -> None:
        if mode and mode not in APPROVALS:
            self._say(f"/approval {mode[:40]}: there is ask, review and auto", True)
        elif mode:
            told = f"{mode}: {APPROVALS[mode]}, from the next step on"
            self._run("run.config", lambda _: self._say(told), settings={"approval": mode})
        else:
            self._run("run.config", lambda run: self._say(self._how(str(run["settings"].get("approval", "")))))

    @staticmethod
    def _how(mode: str) -> str:
        return (
            f"approval {mode}: {APPROVALS.get(mode, '')}" if mode else "approval as the box has it: /approval ask, review or auto"
        )

    def _model(self, pool: str) -> None:
        if pool:
            told = f"pool or route {pool} answers in this thread from now on"
            self._run("run.config", lambda _: self._say(told), settings={"model": pool})
        else:
            self._run("run.config", lambda run: self._say(f"answered by {run['settings'].get('model') or 'the default pool'}"))

    def _offer(self, answer: str) -> None:
        if answer in ("yes", "no"):
            self._ask("model.answer_offer", {"is_wanted": answer == "yes"}, lambda done: self._say(done["text"]))
        elif answer:
            self._say(f"/offer {answer[:40]}: there is yes and no", True)
        else:
            self._ask("model.offer", {}, lambda found: self._say(found["text"] or "no better model is offered"))

    def _sessions(self, found: list[dict[str, Any]]) -> None:
        width = max((len(one["id"]) for one in found), default=0)
        lines = [f"{one['id']:<{width}}  {one['status']:<9}{ago(one['last_active_ms'], now_ms()):>6}" for one in found]
        self._chat.note("\n".join(lines) or "no sessions")

    def _archive(self, found: dict[str, Any]) -> None:
        session = found["thread"]["session"]
        told = f"session {session} is put away; your next message brings it back"
        self._ask("session.archive", {"id": session}, lambda _: self._say(told))

    def _status(self, status: dict[str, Any]) -> None:
        broker = status["broker"]
        lines = [
            f"core      pid {status['pid']}, version {status['version']}, up {status['uptime_s']} s",
            f"broker    {broker['state']}, {broker.get('model') or 'no model loaded yet'}",
            *([f"model     {held['model']}, {held['tier']} ({held['basis']})"] if (held := status.get("local")) else []),
            f"home      {status['home']}",
            f"entries   {status['entries']}",
            f"answering {status['answering']}",
            *([f"sandbox   {held['state']}: {held['reason']}"] if (held := status["sandbox"])["reason"] else []),
            f"waiting   {self._waits.count} for your decision",
            f"thread    {self._thread or 'none yet'}",
        ]
        problems = [
            *status["faults"],
            *([f"the model process {end}, and was started again"] if (end := broker.get("last_end")) else []),
        ]
        problems += [*status["folder"]["problems"], *status["roles"]["problems"]]
        self._chat.note("\n".join([*(f"problem   {problem}" for problem in problems), *lines]))

    # -- inside -------------------------------------------------------------------------------------

    @property
    def _thread(self) -> str:
        return self._chat.talk.thread

    def _go(self, thread: str, told: str = "") -> None:
        self._chat.resume(thread, "", told)

    def _run(self, method: str, then: Callable[[Any], object], **params: Any) -> None:
        self._ask(method, {"run": self._thread, **params}, then)

    def _ask(self, method: str, params: dict[str, Any], then: Callable[[Any], object]) -> None:
        self._panel.ask(method, params, then, failed=self._failed)

    def _failed(self, error: OwlError) -> None:
        self._say(str(error), True)

    def _say(self, text: str, is_error: bool = False) -> None:
        self._panel.host.say(text, is_error)


def said(events: list[dict[str, Any]], *, is_whole: bool) -> list[Said]:
    """What a person said on a branch, each with the number of the event before it, 0 for the beginning of the thread.

    Of a part of a branch the first event is left out: nobody knows what was before it.
    """
    found, before = [], 0 if is_whole else None
    for event in events:
        if event["kind"] == "message" and event["role"] == "user" and before is not None:
            found.append(Said(event["seq"], before, event["content"]))
        before = event["seq"]
    return found


def _fits(thread: dict[str, Any], words: str) -> bool:
    text = f"{named(thread)} {thread['id']}".lower()
    return all(word in text for word in words.lower().split())
