"""What happens to a run that outgrows its model, turn by turn: real broker, real database, real tools, scripted answers."""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import quick
from process import clean_environ
from record_tools import replace
from stores import new_home
from test_scenarios import ENTRIES, Stage, Told, put, update

from appliance.clock import new_id, now_ms
from appliance.errors import NotFound
from appliance.knowledge.views import Actor
from appliance.prompt.inspection import telemetry
from appliance.prompt.packet_types import PacketScene
from appliance.prompt.sent_copies import SentCopy
from appliance.records import Inbound, RunSettings
from appliance.runtime import hook_points
from appliance.runtime.paths import Home
from appliance.service.core import Core

ROOT = Path(__file__).parents[2]
WINDOW = 12_000  # tokens; the script counts two characters as one
BIG = "owl " * 2000
ANSWERS: dict[str, list[str]] = {
    "fits": [put("agent://a", BIG), '<get path="agent://a"/>', "It fits."],
    "opens-too-much": [
        "".join(put(f"agent://b{n}", BIG) for n in range(3)),
        '<get path="agent://b0"/><get path="agent://b1"/><get path="agent://b2"/>',
        "Too much at once.",
    ],
    "opens-one-more": [
        put("agent://c0", BIG) + put("agent://c1", BIG) + put("agent://c2", BIG),
        '<get path="agent://c0"/>',
        '<get path="agent://c1"/><get path="agent://c2"/>',
        "One is enough.",
    ],
    "long-prompt": ["I read the beginning."],
    "never-fits": ["never said"],
    "steady": [put(f"known://s{n}", f"fact {n}") + update(102, f"step {n}") for n in range(5)] + ["Done."],
    "again": ["I am back."],
    "measured": [put("agent://m", BIG), '<get path="agent://m"/>', "It fits."],
    "chat": ["Hello."] * 40,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("grinder") / "home")
    new_home(made)
    return made


@pytest.fixture(scope="module")
def environ(home: Home) -> Iterator[dict[str, str]]:
    runtime = Path(f"/tmp/owl-{new_id()[-12:]}")
    runtime.mkdir()
    script = home.root.parent / "script.json"
    script.write_text(json.dumps({"turns": [{"match": rf"\[{n}\]", "text": a} for n, said in ANSWERS.items() for a in said]}))
    yield clean_environ(home.root.parent, runtime) | {
        "OWLBOX__MODELS__SCRIPT": str(script),
        "OWLBOX__MODELS__CONTEXT": str(WINDOW),
        "OWLBOX__RUNS__COPIES": "all",
    }
    shutil.rmtree(runtime)


@pytest.fixture(scope="module")
def stage(home: Home, environ: dict[str, str]) -> Iterator[Stage]:
    core = Core(home, environ, process="cli", is_shared=False)
    core.recover()
    yield Stage(core)
    assert core.close("the test is over") == []


def ask(stage: Stage, name: str, prompt: str = "", settings: RunSettings = ENTRIES) -> Any:
    return stage.ask(f"[{name}] {prompt or 'Do it.'}", settings, "act")


def copies(stage: Stage, run: str) -> list[SentCopy]:
    return [stage.core.copies.get(run, turn) for turn in stage.core.copies.turns(run)]


def views(stage: Stage, run: str, prefix: str = "agent") -> dict[str, str]:
    return {view.path: view.visibility for view in stage.core.views.views_of(run, prefix=prefix)}


def notes(stage: Stage, run: str) -> list[str]:
    return [f"{view.path} {view.status}" for view in stage.core.views.views_of(run, prefix="error://")]


@pytest.mark.covers("R-166")
def test_what_fits_stays_as_the_model_wants_it(stage: Stage) -> None:
    told = ask(stage, "fits")
    assert told.end.status == 200 and views(stage, told.run) == {"agent://a": "visible"} and notes(stage, told.run) == []
    assert BIG in copies(stage, told.run)[2].text("user")


@pytest.mark.covers("R-165", "E-142")
def test_what_a_turn_opened_is_closed_again_when_it_is_too_much(stage: Stage) -> None:
    told = ask(stage, "opens-too-much")
    assert told.end.status == 200 and set(views(stage, told.run).values()) == {"summarized"}
    assert notes(stage, told.run) == ["error://turn_2/budget/dispatched 413"]
    last = copies(stage, told.run)[-1]
    assert last.tokens <= WINDOW * 0.9 and "Summarized again: agent://b0, agent://b1, agent://b2" in last.text("user")
    assert all(view.status == 200 for view in stage.core.views.views_of(told.run, prefix="agent"))


@pytest.mark.covers("R-165", "E-141")
def test_what_was_opened_before_stays_open(stage: Stage) -> None:
    told = ask(stage, "opens-one-more")
    assert views(stage, told.run) == {"agent://c0": "visible", "agent://c1": "summarized", "agent://c2": "summarized"}
    assert BIG in copies(stage, told.run)[-1].text("user")


@pytest.mark.covers("R-164", "E-142")
def test_what_the_turn_before_opened_is_closed_before_a_call(stage: Stage) -> None:
    """A run goes on with a smaller window than it had."""
    first = ask(stage, "opens-one-more-later")
    core = stage.core
    for n in range(3):
        core.entries.set(f"agent://late{n}", BIG)
        entry = core.entries.get(f"agent://late{n}")
        core.views.promote(_actor(first.run, 1), [entry.id])
    told = stage.ask("[again] And now?", ENTRIES, "act", thread=first.run)
    assert told.end.status == 200 and set(views(stage, told.run, "agent://late").values()) == {"summarized"}
    assert notes(stage, told.run) == ["error://turn_2/budget/opened 413"]


@pytest.mark.covers("R-164")
def test_a_packet_is_measured_by_what_the_provider_counted_for_the_one_before(stage: Stage) -> None:
    scenes: list[PacketScene] = []
    away = stage.core.hooks.add(hook_points.CONTEXT, scenes.append)
    try:
        told = ask(stage, "measured")
    finally:
        away()
    counted = [turn["prompt_tokens"] for turn in stage.core.runs.turns(told.run)]
    assert [scene.measured for scene in scenes] == [None, *counted[:-1]] and all(counted)
    assert [scene.before is None for scene in scenes] == [True, False, False]


def _actor(run: str, turn: int) -> Any:
    return Actor("system", run, 1, turn)


@pytest.mark.covers("R-164")
def test_a_prompt_that_is_too_long_is_shown_in_part(stage: Stage) -> None:
    told = ask(stage, "long-prompt", "word " * 4500)
    assert told.end.status == 200 and "error://turn_1/budget/prompt 413" in notes(stage, told.run)
    sent = copies(stage, told.run)[0]
    assert 'visibility="summarized"' in sent.text("user") and sent.tokens <= WINDOW * 0.9


@pytest.mark.covers("R-164", "E-139")
def test_a_run_that_cannot_be_made_to_fit_ends_with_413(stage: Stage) -> None:
    settings = replace(ENTRIES, context_limit=1024)
    told = ask(stage, "never-fits", settings=settings)
    assert (told.end.status, told.end.outcome) == (500, "too_large") and "that the model may be sent" in told.end.message
    budget, model = notes(stage, told.run)
    assert budget == "error://turn_1/budget/prompt 413"
    assert model.startswith("error://turn_1/model/the_instructions/") and model.endswith(" 413")
    with pytest.raises(NotFound):
        stage.core.copies.get(told.run, 1)  # the model was never asked


@pytest.mark.covers("R-149", "R-154")
def test_turns_share_their_system_text_and_every_unchanged_byte_of_the_summary(stage: Stage) -> None:
    told = ask(stage, "steady")
    sent = copies(stage, told.run)
    assert len(sent) == 6 and len({copy.text("system") for copy in sent}) == 1
    assert len({hashlib.sha256(copy.text("user/prompt").encode()).digest() for copy in sent}) == 1
    for before, after in zip(sent[1:], sent[2:]):  # the first has no summary yet
        summary = before.text("user/summary").removesuffix("\n</summary>")
        assert after.text("user/summary").startswith(summary)
        common = len(before.text("user/prompt")) + len("\n\n") + len(summary)
        assert before.text("user")[:common] == after.text("user")[:common]


@pytest.mark.covers("R-158")
def test_copies_are_for_people_and_hold_what_the_broker_got(stage: Stage) -> None:
    told = ask(stage, "steady-again")
    copy = copies(stage, told.run)[0]
    cost = stage.core.runs.turns(told.run)[0]
    assert copy.tokens == cost["prompt_tokens"] > 0 and copy.text("answer")
    assert f"{copy.text('answer')}" not in copy.text("user")


@pytest.mark.covers("R-168")
def test_what_a_run_took_is_counted(stage: Stage) -> None:
    told = ask(stage, "fits-again")
    turns = stage.core.runs.turns(told.run)
    found = telemetry(turns)
    assert stage.core.sight.size(told.run)["telemetry"] == found
    assert found["context_tokens"] == turns[-1]["prompt_tokens"] and found["prompt_tokens"] >= found["context_tokens"] > 0


@pytest.mark.covers("A-102", "B-064")
def test_a_long_chat_goes_on_in_a_small_window_with_a_summary(stage: Stage) -> None:
    told = ask(stage, "chat", "Tell me about owls. " + "words " * 300, RunSettings())
    for _ in range(14):
        told = stage.ask("[chat] And then? " + "words " * 300, RunSettings(), "act", thread=told.run)
        assert told.end.status == 200
    stage.core.compactor._thread.submit(lambda: None).result(30)
    made = [event for event in stage.core.runs.events(told.run) if event.kind == "compaction"]
    sent = copies(stage, told.run)
    assert made and max(copy.tokens for copy in sent) <= WINDOW * 0.9
    assert len([e for e in stage.core.runs.events(told.run) if e.role == "user"]) == 15


@pytest.mark.covers("S-010")
def test_what_a_person_said_at_another_door_is_shown_once_at_this_one_and_never_to_others(stage: Stage) -> None:
    def say(channel: str, sender: str, text: str, thread: str = "") -> tuple[str, str]:
        """The run, and what its newest prompt looks like to the model."""
        inbound = Inbound(channel, sender, text, new_id(), now_ms(), thread)
        accepted = stage.inbox.accept(inbound, new_id())
        told = stage.heard(Told(accepted.run, accepted.loop), lambda: stage.inbox.start(accepted.loop))
        assert told.end.status == 200
        return told.run, stage.core.runs.recent(told.run, 80)[-2].content

    people = stage.core.base.people
    people.add_person("eve")
    people.link_identity("slack/eve", "eve")  # an address of another channel is a person of its own until then
    local, first = say("local", "eve", "[chat] Hello.")
    assert first == "[chat] Hello."
    say("slack", "eve", "[chat] The meeting is at nine.")
    say("slack", "bob", "[chat] A secret of Bob's.")
    _, second = say("local", "eve", "[chat] When is it?", local)
    assert second.startswith("Notes:\n- [slack / eve] [chat] The meeting is at nine. [") and "\n\nQuestion: [chat] When" in second
    assert "[slack / assistant] Hello. [" in second and "Bob" not in second
    _, third = say("local", "eve", "[chat] And now?", local)
    assert third == "[chat] And now?"  # once is enough: it stays where it was shown
    assert stage.core.runs.recent(local, 80)[2].content == second


def test_a_restart_changes_no_byte_of_the_system_text(stage: Stage, home: Home, environ: dict[str, str]) -> None:
    core = stage.core
    route = core.models.plan()[0]
    texts = [core.packets.system(core.toolbox.specs(), route.dialect, route.window)]
    other = Core(home, environ | {"TZ": "Pacific/Kiritimati"}, process="cli", is_shared=False)
    try:
        other.recover()
        texts.append(other.packets.system(other.toolbox.specs(), route.dialect, route.window))
    finally:
        other.store.close()
    assert texts[0] == texts[1]


def owlbox(home: Home, environ: dict[str, str], *words: str) -> Any:
    """What a command says, as JSON."""
    command = [sys.executable, "-m", "appliance", "--home", str(home.root), "packet", *words, "--json"]
    done = quick.run(command, env=environ, cwd=ROOT, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.covers("R-158", "R-163", "A-103")
def test_people_look_at_packets_from_the_command_line(stage: Stage, home: Home, environ: dict[str, str]) -> None:
    told = ask(stage, "steady-too")
    found = owlbox(home, environ, "size", told.run)
    assert found["layout"] == "entries" and found["ceiling"] == WINDOW * 0.9 and found["table"]["usage"] > 0
    assert found["text"].startswith("scheme | visible | tokens | %") and "user/prompt" in found["part_chars"]
    shown = owlbox(home, environ, "show", told.run, "--turn", "1")
    copy = stage.core.copies.get(told.run, 1)
    assert (shown["system"], shown["user"], shown["answer"]) == tuple(copy.text(name) for name in ("system", "user", "answer"))
    chat = ask(stage, "chat", settings=RunSettings())
    for _ in range(4):
        stage.ask("[chat] More?", RunSettings(), "act", thread=chat.run)
    done = owlbox(home, environ, "compact", chat.run)
    assert done["covers"] == 6 and owlbox(home, environ, "size", chat.run)["layout"] == "chat"
    assert [e.kind for e in stage.core.runs.events(chat.run)][-1] == "compaction"


def test_a_thread_of_which_nothing_is_kept_says_how_that_is_changed(stage: Stage) -> None:
    run = stage.core.runs.begin("local:ada", "chat").id
    with pytest.raises(NotFound, match="nothing that was sent") as caught:
        stage.core.sight.size(run, 0)
    assert 'runs.copies = "all"' in caught.value.hint


def test_looking_lowers_nothing(stage: Stage) -> None:
    told = ask(stage, "fits-too")
    for n in range(3):
        stage.core.entries.set(f"agent://look{n}", BIG)
        stage.core.views.promote(_actor(told.run, 1), [stage.core.entries.get(f"agent://look{n}").id])
    before = views(stage, told.run)
    found = stage.core.sight.size(told.run)
    assert found["part_chars"]["user/visible"] > found["table"]["usage"]  # characters, not tokens
    assert found["is_over"] and found["table"]["free"] < 0 and views(stage, told.run) == before and notes(stage, told.run) == []
