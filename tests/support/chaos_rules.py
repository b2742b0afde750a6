"""What must hold in `chaos.py`: at any moment, when all is calm, and of everything that was promised."""

import re
from collections.abc import Iterator

from chaos_arena import COMMAND_S, SET_FROM, SETTING, Arena, Promises
from chaos_words import NEVER as NEVER_TOLD
from chaos_words import Templates

from appliance.clock import monotonic_s
from appliance.errors import OwlError
from appliance.store.database import Store
from appliance.upkeep import doctor

ASKERS = 6  # who ask at the same time: so many answers can one fault cut off
SLACK = 3
OF_THE_CORE = ("kill the core", "kill core and broker", "stop the core", "take no writes", "cut the power", "the disk is in use")
OF_THE_BROKER = (*OF_THE_CORE, "kill the broker")
OF_THE_DISK = ("fill the disk", "take no writes", "cut the power")
# How an answer may end that somebody was promised, and by what: no more than ASKERS for each of these.
EXCUSED = {
    "interrupted": OF_THE_BROKER,
    "stopped": OF_THE_CORE,
    "connection_lost": OF_THE_BROKER,
    "unavailable": OF_THE_BROKER,
    "disk_full": OF_THE_DISK,
    "busy": (*OF_THE_DISK, "hang a worker", "drill"),
}
# But for those that the script lets fail.
ENDED_SO = """SELECT 1 FROM loops l LEFT JOIN events e ON e.id = l.prompt WHERE l.outcome = ?
    AND coalesce(e.content, '') NOT GLOB 'fails *' AND coalesce(e.content, '') NOT GLOB 'Task: fails *'"""
UNFINISHED = {
    "loops": "SELECT group_concat(id) FROM loops WHERE status IN (100, 102)",
    "reminders": "SELECT group_concat(s.id) FROM schedules s JOIN schedule_state t ON t.id = s.id "
    "WHERE s.kind = 'once' AND t.halt = '' AND s.is_enabled",
    "firings": "SELECT group_concat(schedule) FROM firings WHERE status = 'running'",
    "words": "SELECT group_concat(entry) FROM pending",
    "tasks": "SELECT group_concat(id) FROM tasks WHERE status = 'in_progress' OR status = 'pending' AND open_blockers = 0",
    "letters": "SELECT group_concat(id) FROM outbox WHERE status IN ('waiting', 'sending')",
}
VECTORS = "SELECT group_concat(id) FROM chunks WHERE embedder IS NULL"
NEVER_EVER = {  # not even for a moment
    "a run whose events have a gap": "SELECT run FROM events GROUP BY run HAVING MIN(seq) <> 1 OR MAX(seq) <> COUNT(*)",
    "a call with several results": """SELECT run, call_id FROM events WHERE kind IN ('tool_use', 'tool_result')
        GROUP BY run, call_id HAVING SUM(kind = 'tool_use') > 1 OR SUM(kind = 'tool_result') > SUM(kind = 'tool_use')""",
    "a question that was recorded twice": """SELECT content FROM events
        WHERE kind = 'message' AND role = 'user' AND channel = 'local' GROUP BY content HAVING COUNT(*) > 1""",
    "a question answered twice": """SELECT l.id FROM loops l JOIN turns t ON t.loop = l.id JOIN events e ON e.turn = t.id
        WHERE l.status = 200 AND e.content = 'Hoot hoot.' GROUP BY l.id HAVING COUNT(*) > 1""",
    "a task with several complete attempts": """SELECT task FROM task_attempts WHERE outcome = 'complete'
        GROUP BY task HAVING COUNT(*) > 1""",
    "a task tried again after it had ended": """SELECT a.task, a.outcome FROM task_attempts a JOIN task_attempts b
        ON b.task = a.task AND b.number > a.number WHERE a.outcome IN ('complete', 'failed', 'waiting')""",
    "two attempts at a task at once": "SELECT task FROM task_attempts WHERE ended_ms IS NULL GROUP BY task HAVING COUNT(*) > 1",
    "a run that used a server's tool and is not marked": """SELECT DISTINCT e.run FROM events e
        WHERE e.kind = 'tool_result' AND e.tool = 'stub_echo' AND e.status = 200
        AND NOT EXISTS (SELECT 1 FROM marks m WHERE m.subject = 'run:' || e.run)""",
    "a vector without its passage": "SELECT rowid FROM chunks_vec_rowids WHERE rowid NOT IN (SELECT id FROM chunks)",
    "an ended task that nobody was told of": """SELECT t.id, t.status FROM tasks t
        WHERE t.status IN ('complete', 'failed', 'waiting') AND NOT EXISTS
        (SELECT 1 FROM outbox o WHERE o.key = 'task:' || t.id || ':' || t.attempts || ':' || t.status)""",
    "a task told twice": """SELECT t.id, COUNT(*) FROM tasks t JOIN outbox o ON o.key LIKE 'task:' || t.id || ':%'
        WHERE o.key NOT LIKE '%:waiting'  -- one that waited for a person is also told of when it is given up
        GROUP BY t.id HAVING COUNT(*) > 1""",
    "a letter that is in its thread twice": """SELECT run, input ->> 'letter' FROM events WHERE input ->> 'letter' IS NOT NULL
        GROUP BY run, input ->> 'letter' HAVING COUNT(*) > 1""",
    "a reminder that was told twice": """SELECT s.id, COUNT(*) FROM schedules s JOIN outbox o
        ON o.key LIKE 'schedule:' || printf('%08x', s.id) || ':%' WHERE s.kind = 'once' GROUP BY s.id HAVING COUNT(*) > 1""",
}
NEVER = {
    "a run that goes on without a loop": "SELECT id FROM runs WHERE status IN (100, 102) AND id IN (SELECT run FROM loops)",
    "a call without its one result": """SELECT run, call_id FROM events WHERE kind IN ('tool_use', 'tool_result')
        GROUP BY run, call_id HAVING SUM(kind = 'tool_use') <> SUM(kind = 'tool_result')""",
    "a complete loop that says and does nothing": """SELECT l.id FROM loops l WHERE l.status = 200 AND NOT EXISTS
        (SELECT 1 FROM turns t JOIN events e ON e.turn = t.id WHERE t.loop = l.id AND e.kind IN ('message', 'tool_use'))""",
    "a loop stopped without a reason": """SELECT id, status, outcome FROM loops
        WHERE status NOT IN (200, 500) AND outcome NOT IN ('interrupted', 'stopped', 'cancelled', 'connection_lost')""",
    "a task with more or fewer than one complete attempt": """SELECT t.id FROM tasks t JOIN task_attempts a ON a.task = t.id
        GROUP BY t.id HAVING SUM(a.outcome = 'complete') <> (t.status = 'complete')""",
    "an attempt without an end": "SELECT task, number FROM task_attempts WHERE ended_ms IS NULL OR outcome = ''",
    "a task done before what it waits for": """SELECT t.id FROM tasks t JOIN task_deps d ON d.task = t.id
        LEFT JOIN tasks b ON b.id = d.blocker WHERE t.status = 'complete' AND b.status IS NOT 'complete'""",
    "a pending task that nothing holds up": """SELECT t.id FROM tasks t WHERE t.status = 'pending' AND NOT EXISTS
        (SELECT 1 FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker WHERE d.task = t.id AND b.status IS NOT 'complete')""",
    "a task paused without evidence": """SELECT id, waiting_reason FROM tasks WHERE status = 'waiting'
        AND waiting_reason <> 'a person must look' AND waiting_reason NOT LIKE 'its worker died 3 times. attempt%'""",
    "a letter that went nowhere": "SELECT id, key, status, error FROM outbox WHERE status NOT IN ('sent', 'logged')",
    "a letter that is not in its thread once": """SELECT o.id, o.key FROM outbox o
        WHERE o.run IS NOT NULL AND o.key NOT LIKE 'answer:%'
        AND (SELECT COUNT(*) FROM events e WHERE e.run = o.run AND e.input ->> 'letter' = o.key) <> 1""",
    "a repeat from a door that knows what it has told": "SELECT id, key FROM outbox WHERE via = 'local' AND may_repeat",
    "more tasks than calls that made them": """SELECT origin FROM tasks WHERE origin IS NOT NULL AND key IS NULL
        GROUP BY origin HAVING COUNT(*) >
        (SELECT COUNT(*) FROM events e WHERE e.run = origin AND e.kind = 'tool_use' AND e.tool = 'create_task')""",
    "a call that succeeded without a task": """SELECT e.run FROM events e
        WHERE e.kind = 'tool_result' AND e.tool = 'create_task' AND e.status = 200
        GROUP BY e.run HAVING COUNT(*) > (SELECT COUNT(*) FROM tasks WHERE origin = e.run)""",
    "a worker that still counts": "SELECT id, process FROM workers WHERE status = 'running'",
    "a turn lock that somebody left": "SELECT session, process FROM turn_locks",
}


def violations(arena: Arena) -> list[str]:
    """Everything that is not as it must be, with ids."""
    found = [
        f"doctor: {one.name}: {one.message}" for one in doctor.examine(arena.box.home, arena.box.environ) if one.state == "problem"
    ]
    store = arena.store
    found += [f"database: {problem}" for problem in store.problems()]
    found += [f"unfinished {name}: {store.value(sql)}" for name, sql in UNFINISHED.items() if store.value(sql)]
    if arena.has_vectors and (left := store.value(VECTORS)):
        found.append(f"chunks without vectors: {left}")
    found += [f"the folder has {line}" for line in differences(arena)]
    for what, sql in (NEVER_EVER | NEVER).items():
        if rows := store.rows(sql):
            found.append(f"{what}: {rows[:5]}{' and more' if len(rows) > 5 else ''}")
    found += list(_broken(arena.promises, store))
    # What a power cut took of what a command did not sync is a hole of zeros, before the line that came next.
    texts = [path.read_text().replace("\0", " ") for path in arena.box.home.root.glob("sessions/**/done.txt")]
    lines = [line for text in texts for line in text.split()]
    found += [f"a command that ran {lines.count(line)} times: {line}" for line in sorted(set(lines)) if lines.count(line) > 1]
    found += [f"a command that left nothing: {line}" for line in arena.promises.commands if line not in lines]
    bad = arena.box.home.drop / "users" / arena.person / "bad"
    found += [f"refused file {path.name}: {path.read_text().strip()}" for path in bad.glob("*.why")]
    return [*found, *_setting(arena), *_excesses(arena), *_words(arena)]


def _excesses(arena: Arena) -> Iterator[str]:
    """More that is forgiven than what went wrong can have done."""
    done = dict(arena.counts)
    for outcome, causes in EXCUSED.items():
        count = len(arena.rows(ENDED_SO, (outcome,)))
        if count > (most := SLACK + ASKERS * sum(done.get(cause, 0) for cause in causes)):
            yield f"{count} answers ended as {outcome}, for which there was cause {most} times"
    yield from _lost_acknowledgements(done)


def _lost_acknowledgements(done: dict[str, int]) -> Iterator[str]:
    # Between commit and answer lie some milliseconds: few are hit by a kill, and few wait for a slow machine.
    most = SLACK + sum(done.get(cause, 0) for cause in (*OF_THE_CORE, "calls that lasted too long"))
    if (count := done.get("acknowledgements lost", 0)) > most:
        yield f"{count} messages were accepted and nobody was told, for which there was cause {most} times"


def _words(arena: Arena) -> Iterator[str]:
    """What was said that is no sentence of ours, or says nothing."""
    templates = Templates(arena.product / "appliance")
    for text, when in arena.told.items():
        if problem := templates.problem(text):
            yield f"said {text!r}, which {problem} (after {when})"
    for (text,) in arena.rows("SELECT text FROM outbox UNION SELECT content FROM events WHERE kind <> 'message' OR role <> 'user'"):
        if found := NEVER_TOLD.search(str(text)):
            yield f"wrote {found.group()!r}: {str(text)[:200]!r}"
    output = (arena.runtime / "output.txt").read_text(errors="replace")
    if "Traceback" in output:
        yield f"a traceback in the output: {output[output.index('Traceback') :][:2000]}"


def _broken(promises: Promises, store: Store) -> Iterator[str]:
    """What was acknowledged and is not there as promised."""
    for text, (run, loop) in promises.messages.items():
        asked = "SELECT 1 FROM loops l JOIN events e ON e.id = l.prompt WHERE l.id = ? AND l.run = ? AND e.content = ?"
        if not store.value(asked, (loop, run, text)):
            yield f"lost message {text!r}: loop {loop} of thread {run}"
        status, outcome = store.row("SELECT status, outcome FROM loops WHERE id = ?", (loop,)) or (0, "")
        is_answered = status == 200 or status == 500 and text.startswith(("fails", "breaks"))
        if not is_answered and outcome not in EXCUSED:
            yield f"message {text!r} has no answer and no excuse: {status} {outcome}"
    for text in promises.questions:
        if len(store.rows("SELECT 1 FROM events WHERE kind = 'message' AND role = 'user' AND content = ?", (text,))) != 1:
            yield f"question {text!r} was answered and is not recorded once"
    for task, name in promises.tasks.items():
        if store.value("SELECT name FROM tasks WHERE id = ?", (task,)) != name:
            yield f"lost task {task} {name!r}"
    for key, name in promises.dropped.items():
        if store.rows("SELECT name FROM tasks WHERE key = ?", (key,)) != [(name,)]:
            yield f"lost file {key}: a task {name!r}"
    for key, text in promises.letters.items():
        if store.rows("SELECT text FROM outbox WHERE key = ?", (key,)) != [(text,)]:
            yield f"lost file {key}: a letter {text!r}"
    for ref, text in promises.reminders.items():
        told = store.rows("SELECT text FROM outbox WHERE key LIKE ?", (f"schedule:{ref}:%",))
        if [str(row[0]).partition("\n")[0] for row in told] != [f"Reminder: {text}"]:
            yield f"reminder {ref} {text!r} was told as {told}"
    for ref, text in promises.documents.items():
        if store.value("SELECT body FROM entries WHERE path = ?", (ref,)) != text:
            yield f"lost document {ref}"
    for ref, text in promises.memories.items():
        if store.value("SELECT body FROM entries WHERE path = ?", (ref,)) != text:
            yield f"lost memory {ref}"
    for title, is_undone in promises.kept.items():
        if bool(store.rows("SELECT 1 FROM entries WHERE title = ?", (title,))) is is_undone:
            yield f"{title!r} was taken back and is there" if is_undone else f"lost memory {title!r}"


def _setting(arena: Arena) -> Iterator[str]:
    """A key that was set is set; a command that was killed may have done it."""
    promises, found = arena.promises, re.search(rf"{SETTING.rpartition('.')[2]} = (\d+)", arena.box.home.config.read_text())
    value = int(found.group(1)) - SET_FROM if found else 0
    if not promises.setting <= value <= promises.setting_tried:
        yield f"{SETTING} is set to {value}, {promises.setting} was told, {promises.setting_tried} tried"


def unfinished(arena: Arena) -> list[str]:
    """Queries that find nothing once all is done."""
    return [*UNFINISHED.values(), *([VECTORS] if arena.has_vectors else [])]


def differences(arena: Arena) -> list[str]:
    """Notes that are not as the files of the folder are."""
    root = arena.box.home.box
    files = {f"box://{path.relative_to(root)}": path.read_text() for path in (root / "notes").rglob("*.md")}
    rows = arena.rows("SELECT path, body FROM entries WHERE path >= 'box://notes/' AND path < 'box://notes0'")
    known = {str(path): str(body) for path, body in rows}
    return [
        f"{path}: {'no entry' if path not in known else 'no file' if path not in files else 'another text'}"
        for path in sorted({*files, *known})
        if files.get(path) != known.get(path)
    ]


def watch(arena: Arena) -> None:
    """Look every second, and how long commands last."""
    seen_s: dict[int, float] = {}
    while not arena.is_over.wait(1.0):
        look(arena)
        now_s, running = monotonic_s(), arena.commands()
        seen_s = {pid: seen_s.get(pid, now_s) for pid in running}
        _report(
            arena, [f"a command lasts too long: {running[pid]}" for pid, since_s in seen_s.items() if now_s > since_s + COMMAND_S]
        )


def look(arena: Arena) -> None:
    """While it runs: what must hold at any moment, and what was promised by then."""
    try:
        found = [f"{what}: {rows[:3]}" for what, sql in NEVER_EVER.items() if (rows := arena.rows(sql))]
        found += [*_lost(arena), *_lost_acknowledgements(arena.counts)]
    except OwlError:
        return  # the database is closed, or nothing can be read on a full disk
    arena.counts["looks"] = arena.counts.get("looks", 0) + 1
    _report(arena, found)


def _report(arena: Arena, found: list[str]) -> None:
    for one in found:
        if f"{one} (while it ran)" not in arena.broken:
            arena.note(f"violated: {one}")
            arena.broken[f"{one} (while it ran)"] = None


def _lost(arena: Arena) -> Iterator[str]:
    """What was acknowledged a moment ago and is not there."""
    promises = arena.promises
    for text, (run, loop) in list(promises.messages.items())[-50:]:
        if not arena.rows("SELECT 1 FROM loops WHERE id = ? AND run = ?", (loop, run)):
            yield f"lost message {text!r}: loop {loop} of thread {run}"
    for task, name in list(promises.tasks.items())[-50:]:
        if arena.value("SELECT name FROM tasks WHERE id = ?", (task,)) != name:
            yield f"lost task {task} {name!r}"
    for ref in list(promises.reminders)[-50:]:
        if not arena.rows("SELECT 1 FROM schedules WHERE id = ?", (int(ref, 16),)):
            yield f"lost reminder {ref}"
    for key, name in list(promises.dropped.items())[-50:]:
        if not _is_waiting(arena, key) and not arena.rows("SELECT 1 FROM tasks WHERE key = ?", (key,)):
            yield f"lost file {key}: a task {name!r}"
    for key, text in list(promises.letters.items())[-50:]:
        if not _is_waiting(arena, key) and not arena.rows("SELECT 1 FROM outbox WHERE key = ?", (key,)):
            yield f"lost file {key}: a letter {text!r}"
    for ref in list(promises.memories)[-20:]:
        if not arena.rows("SELECT 1 FROM entries WHERE path = ?", (ref,)):
            yield f"lost memory {ref}"
    for ref in list(promises.documents)[-20:]:
        if not arena.rows("SELECT 1 FROM entries WHERE path = ?", (ref,)):
            yield f"lost document {ref}"


def _is_waiting(arena: Arena, key: str) -> bool:
    """Whether a file that was dropped is there yet, under whatever name: it goes when what it asks for is recorded."""
    own = key.rpartition(":")[2]
    with arena.reading:
        return any(path.stem.endswith((own, f"{own}-again")) for path in arena.folder.glob("*"))
