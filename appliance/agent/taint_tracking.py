"""From where a run's marks come: what it reads, what is shown with its messages, what its tasks and folders bring along.

Owns the ways by which texts of strangers reach a run, and marks it. A call is looked at before it is run, so that what it
copies is marked as well, and after it, by the references that stand in its result: no tool has to say that what it read
was marked. What a command reads is not known, so a folder in which a marked run has worked is marked as a whole. Knows
nothing about what follows from a mark. Not promised: a text whose reference the result does not name.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import BadInput
from appliance.ingest import box_refs, prompt_documents
from appliance.knowledge.entries import PROJECT
from appliance.policy.taint import INSIDE, Mark, leaves, of_path
from appliance.policy.taint_marks import Marks
from appliance.prompt.packet_types import PacketScene, Stage
from appliance.records import Event, Marked, Outcome, Part, Terms, ToolCall
from appliance.skills.catalog import SkillCatalog
from appliance.store import visibility
from appliance.text.fences import is_origin
from appliance.text.references import parse_ref, scheme_of

REF = re.compile(r"(?<![\w/])([a-z][a-z0-9+._-]*:/[^\s<>\"'`|\]]+)")
SHOWN = re.compile(r"(?=\[(.+)\]$)", re.MULTILINE)  # behind each passage that is shown with a message; names may hold brackets
UID = re.compile(r"[0-9a-f-]{32,36}")
SKILL = "skill://"
SCRIPT = re.compile(r"/skills/([A-Za-z0-9_][\w.-]{0,63})/scripts")
AFTER = ".,;:!?)*_"
MAX_REFS = 4000  # of one result
PLACE = "place:project"
COMMANDS = ("exec", "project")  # profiles that see the project
SANDBOXED = ("files", "project", "exec")  # profiles of tools that work in a folder
# What the numbers in results of a group are.
SUBJECTS = {"planning": "task", "threads": "run", "schedules": "schedule"}
NUMBERS = ("id", "task", "run", "thread", "schedule")
HELP = "tool_help"
TREE = "context_tree"  # shows names and no references
NEAR = ("nearby: ", "it holds ")  # how hints begin that name what is there instead


class Sight(Struct, frozen=True):
    """What is known of a call: of which tool, group and profile it is, who calls it where."""

    tool: str
    group: str
    profile: str
    is_read_only: bool
    run: str
    session: str = ""
    terms: Terms = Terms()
    server: str = ""  # the origin of the server's tool that help is asked about


def _places_of(sight: Sight) -> tuple[str, ...]:
    """The folders that a call may read or write: its conversation's, and the project's where its run may see that."""
    own = (f"place:{sight.session}",) if sight.session else ()
    return (*own, PLACE) if sight.terms.has_repo and sight.profile in COMMANDS else own


class Origins:
    """Marks runs. Without `skills` every skill came with the product."""

    def __init__(self, marks: Marks, skills: SkillCatalog | None = None) -> None:
        self._marks = marks
        self._skills = skills

    # -- calls of tools -----------------------------------------------------------------------------

    def before(self, sight: Sight, call: ToolCall) -> None:
        """Mark the run with what a call names: what it copies, or takes into a task, is then marked by its writing."""
        named = _named_refs(call.arguments)
        self.add(sight.run, [*self.of(named), *([] if sight.is_read_only else self._marks_below(named))])
        if sight.profile == "exec":  # a command that names scripts of a skill runs what its author wrote
            said = str(call.arguments.get("command") or "")
            self.add(sight.run, self.of(f"{SKILL}{name}" for name in SCRIPT.findall(said)))
        if sight.profile in SANDBOXED and (places := _places_of(sight)):
            self._marks.inherit(f"run:{sight.run}", *places)

    def after(self, sight: Sight, call: ToolCall, outcome: Outcome) -> Outcome:
        """The outcome with its origin where it shows untrusted text; folders and tasks that the run has changed are marked."""
        if not sight.is_read_only:
            self._pass_on(sight, call, outcome)
        if is_origin(outcome.origin):  # at once: another tool may be about to keep what this one said
            self.add(sight.run, [Mark(outcome.origin, outcome.source)])
        if outcome.origin or sight.profile != "db":
            return outcome
        named = _named_refs(call.arguments) if sight.is_read_only else []
        found = [
            *self.of([*named, *_find_refs(outcome.message), *_reported_refs(outcome.data)]),
            *self._marks_counted(sight, call, outcome),
        ]
        found += self._marks_below(named) if sight.tool == TREE else []
        found += self._marks_hinted(call, outcome.hint)
        if sight.tool == HELP and sight.server:
            found.append(Mark(sight.server, str(call.arguments.get("name"))))
        if not found:
            return outcome
        self.add(sight.run, found)
        worst = next((mark for mark in found if mark.origin not in INSIDE), found[0])
        return replace(outcome, origin=worst.origin, source=worst.source)

    def recognize(self, sight: Sight, call: ToolCall, outcome: Outcome, own: str) -> None:
        """Mark the tasks and schedules that a call has changed with the words of strangers in it, but for the person's `own`."""
        texts = [leaf for leaf, _ in leaves(call.arguments) if isinstance(leaf, str)]
        for number in _find_numbers(outcome.data, call.arguments):
            self._marks.recognize(f"{SUBJECTS[sight.group]}:{number}", *texts, own=(own,))

    # -- what is shown without a call ---------------------------------------------------------------

    def relevant(self, run: str, text: str) -> None:
        """Mark a run with the passages that are shown with its message."""
        self.add(run, self.of_passages(text, run))

    def quoted(self, text: str, run: str) -> str:
        """A filter that changes nothing: marks a run whose answer quotes an entry that is marked, though no tool read it."""
        self.add(run, self.of(SHOWN.findall(text)))
        return text

    def of_passages(self, text: str, run: str = "") -> list[Mark]:
        """The marks of passages that a search found, but for those of the run itself that is shown them."""
        refs = SHOWN.findall(text)
        return [*self.of(refs), *self._marks.of(*(f"run:{ref}" for ref in refs if ref != run))]

    def carried(self, text: str) -> Marked:
        """The same, as a message carries them."""
        return tuple((mark.origin, mark.source) for mark in self.of_passages(text))

    def task(self, run: str, task: int, before: Iterable[int], refs: Sequence[str], relevant: str = "") -> None:
        """Mark the run of a task with what its briefing holds: the task, those before it, earlier attempts, and its texts."""
        tasks = [task, *before]
        self._marks.inherit(f"run:{run}", *(f"task:{one}" for one in tasks), *self._marks.runs_of(tasks))
        self.add(run, self.of(refs))
        if relevant:
            self.relevant(run, relevant)

    def packet(self, parts: tuple[Any, ...], stage: Stage) -> tuple[Any, ...]:
        """A filter that changes nothing: marks a run that is shown entries with those of them that are marked."""
        items = [item for item in stage.seen.all() if item.scheme != "log"]
        found = [mark for item in items if (mark := of_path(item.path)) is not None and mark.origin not in INSIDE]
        found += self._marks.of(*(f"entry:{item.entry}" for item in items)) if self._marks.has_entries() else ()
        self.add(stage.scene.run, [*found, *self.of([part.name for part in stage.found])])
        return parts

    def documents(self, parts: tuple[Part, ...], scene: PacketScene) -> tuple[Part, ...]:
        """A filter that changes nothing: marks a run whose prompt or role says what strangers said."""
        if scene.run and self._marks.has_entries():
            kind, _, name = visibility.current().partition(":")
            folders = ("", f"{prompt_documents.ROLES}/{scene.role}/", f"{kind}s/{name}/")
            names = [f"{folder}{part.name}" for folder in folders for part in parts]
            refs = [f"{box_refs.SCHEME}{name}.md" for name in (*names, f"{prompt_documents.ROLES}/{scene.role}")]
            self.add(scene.run, [mark for marks in self._marks.entries(refs, PROJECT).values() for mark in marks])
        return parts

    # -- inside -------------------------------------------------------------------------------------

    def of(self, refs: Iterable[str]) -> list[Mark]:
        """The marks of what these references mean: by the scheme alone, or by who wrote it."""
        found: list[Mark] = []
        asked: list[str] = []
        for ref in dict.fromkeys(refs):
            path = _stored_path(ref)
            if not path:
                continue
            if path.startswith(SKILL):
                parts = path.removeprefix(SKILL).split("/")
                name = parts[2] if parts[0] in ("user", "group") and len(parts) == 3 else parts[0]
                found += [] if self._skills is None or self._skills.is_ours(name) else [Mark("skill", name)]
            elif (mark := of_path(path)) is not None:
                found.append(mark)
            asked.append(path)
        if asked and self._marks.has_entries():
            for marks in self._marks.entries(asked[:MAX_REFS], PROJECT).values():
                found += marks
        return list(dict.fromkeys(found))

    def _marks_below(self, refs: Iterable[str]) -> list[Mark]:
        """The marks of all entries in the folders of these references."""
        folders = {path.rstrip("/") + "/" for ref in refs if "/" in ref and (path := _stored_path(ref))}
        if not folders or not self._marks.has_entries():
            return []
        return [mark for folder in sorted(folders) for mark in self._marks.below(folder, PROJECT)]

    def _marks_hinted(self, call: ToolCall, hint: str) -> list[Mark]:
        """The marks of what an error says is near: names are somebody's words, too."""
        start = next((start for start in NEAR if hint.startswith(start)), "")
        if not start or not self._marks.has_entries():
            return []
        near = hint.removeprefix(start).split(", ")
        found = [*self.of(near), *self._marks_below(one for one in near if one.endswith("/"))]
        if not all(REF.match(one) for one in near):  # a name with a comma in it: whatever lies above what was asked for
            above = {
                path[: at + 1] for ref in _named_refs(call.arguments) for path in (_stored_path(ref),) for at in _find_slashes(path)
            }
            found += [mark for folder in sorted(above) for mark in self._marks.below(folder, PROJECT)]
        return found

    def add(self, run: str, found: Sequence[Mark]) -> None:
        """Mark a run; writes nothing when it has all of these marks."""
        if not run or not found:
            return
        known = set(self._marks.of(f"run:{run}"))
        for mark in dict.fromkeys(found):
            if mark not in known:
                self._marks.add(f"run:{run}", mark.origin, mark.source, self._marks.seq(run))

    def _pass_on(self, sight: Sight, call: ToolCall, outcome: Outcome) -> None:
        """What a marked run may have written into its folder, or said in a task of an earlier one."""
        mine = f"run:{sight.run}"
        if sight.profile in SANDBOXED:
            found = [mark for mark in self._marks.of(mine) if mark.origin not in INSIDE]
            for place in _places_of(sight) if found else ():
                for mark in set(found) - set(self._marks.of(place)):
                    self._marks.add(place, mark.origin, mark.source)
        elif sight.group in SUBJECTS and not outcome.is_error:
            for number in _find_numbers(outcome.data, call.arguments):
                self._marks.inherit(f"{SUBJECTS[sight.group]}:{number}", mine)

    def _marks_counted(self, sight: Sight, call: ToolCall, outcome: Outcome) -> Sequence[Mark]:
        """The marks of tasks, threads and schedules that a result tells of by their numbers."""
        kind = SUBJECTS.get(sight.group)
        if kind is None:
            return ()
        told = UID.findall(outcome.message[:200_000]) if kind == "run" else []  # a list of threads has them in its lines
        numbers = [number for number in dict.fromkeys((*_find_numbers(outcome.data, call.arguments), *told)) if number != sight.run]
        subjects = [f"{kind}:{number}" for number in numbers]
        if kind == "schedule":  # the outcome is told with it
            subjects += [f"firing:{number}" for number in numbers]
        if kind == "task":
            subjects += self._marks.runs_of([int(number) for number in numbers if number.isdecimal()])
        return self._marks.of(*(subject for subject in subjects if subject != f"run:{sight.run}"))


def _named_refs(arguments: Mapping[str, Any]) -> list[str]:
    """What the arguments of a call may mean: references, uids, and paths beside the name of a drive."""
    found = [text for leaf, _ in leaves(arguments) if isinstance(leaf, str) for text in (*_find_refs(leaf[:100_000]), leaf[:2048])]
    for drive, path in (("drive", "path"), ("src_drive", "src_path")):
        if isinstance(name := arguments.get(drive), str) and name:
            found.append(f"{name}:/{str(arguments.get(path) or '').lstrip('/')}")
    return found


def named_paths(events: Iterable[Event]) -> list[str]:
    """The stored paths that calls and texts of a conversation name."""
    refs = (ref for one in events for ref in (*_named_refs(one.input or {}), *SHOWN.findall(one.content), *_find_refs(one.content)))
    return [path for ref in itertools.islice(dict.fromkeys(refs), MAX_REFS) if (path := _stored_path(ref))]


def is_elsewhere(arguments: Mapping[str, Any]) -> bool:
    """Whether all that the arguments of a call name lies where no model writes: pages that were added, documents."""
    paths = [path for ref in _named_refs(arguments) if (path := _stored_path(ref)) and not UID.fullmatch(path)]
    found = [of_path(path) for path in paths]
    return bool(found) and all(mark is not None and mark.origin not in INSIDE for mark in found)


def _find_slashes(path: str) -> list[int]:
    """Where the folders of a stored path end, its scheme's first."""
    begin = path.find("://") + 2
    return [at for at, letter in enumerate(path) if letter == "/" and at >= begin > 1]


def _find_refs(text: str) -> list[str]:
    """The references in a text, each as it stands and without what may follow it."""
    found: list[str] = []
    for match in REF.finditer(text):
        ref = match[1].rstrip(AFTER)
        found += [ref, re.sub(r":\d+(:.*)?$", "", ref)]
        if len(found) > 2 * MAX_REFS:
            break
    return found


def _reported_refs(data: Any) -> list[str]:
    """The references that a result tells programs: whole, whatever their names hold."""
    texts = (leaf for leaf, _ in leaves(data) if isinstance(leaf, str) and len(leaf) <= 2048 and ":/" in leaf)
    return [*itertools.islice(texts, MAX_REFS)]


def _stored_path(ref: str) -> str:
    """The stored path of what may be a reference, or a uid; "" for what is none, or a plain address of the web."""
    if UID.fullmatch(ref):
        return ref
    try:
        path = parse_ref(ref)
    except BadInput:
        return ""
    return "" if scheme_of(path) in (None, "http", "https") else path


def _find_numbers(data: Any, arguments: Mapping[str, Any]) -> list[str]:
    """The ids in the fields `NUMBERS` of a result or of a call's arguments."""
    found: dict[str, None] = {}

    def look(value: Any) -> None:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                if name in NUMBERS and isinstance(inner, str | int) and not isinstance(inner, bool):
                    found[str(inner)] = None
                look(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                look(inner)

    look(data)
    look(arguments)
    return list(found)[:MAX_REFS]
