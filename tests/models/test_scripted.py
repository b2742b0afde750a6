"""The scripted model plays its file: in order, by match, with delays, calls and failures."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from appliance.errors import Busy, Cancelled, ConfigError, DeadlineExceeded
from appliance.providers.scripted import OTHERWISE, Scripted
from appliance.records import Ask, Finish, Message, Part, Piece, Route, ToolSpec

ROUTE = Route("local", "scripted", "s", 8192, "native")


def scripted(folder: Path, text: str, name: str = "play.toml") -> Scripted:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return Scripted(path, 8192)


def asked(text: str = "hi", **more: object) -> Ask:
    return Ask((Part("core", "You are an owl."),), (Message("user", text),), **more)  # type: ignore[arg-type]


def play(model: Scripted, ask: Ask) -> tuple[list[Piece], Finish]:
    *pieces, finish = model.generate(ROUTE, ask, threading.Event())
    assert isinstance(finish, Finish)
    return [p for p in pieces if isinstance(p, Piece)], finish


def said(model: Scripted, ask: Ask) -> str:
    return "".join(p.text for p in play(model, ask)[0] if not p.is_reasoning)


@pytest.mark.covers("B-171")
def test_turns_without_match_are_used_in_order_then_a_polite_sentence(tmp_path: Path) -> None:
    model = scripted(tmp_path, '[[turns]]\ntext = "one"\n[[turns]]\ntext = "two"\n')
    assert [said(model, asked()) for _ in range(4)] == ["one", "two", OTHERWISE, OTHERWISE]


@pytest.mark.covers("B-171")
def test_a_matching_turn_wins_once_or_for_ever(tmp_path: Path) -> None:
    model = scripted(
        tmp_path,
        '[[turns]]\ntext = "plain"\n[[turns]]\nmatch = "(?i)weather"\ntext = "rain"\n'
        '[[turns]]\nmatch = "again"\nrepeat = true\ntext = "echo"\n',
    )
    words = ["the Weather?", "the Weather?", "again", "again"]
    assert [said(model, asked(w)) for w in words] == ["rain", "plain", "echo", "echo"]


@pytest.mark.covers("B-171")
def test_titles_use_no_turns(tmp_path: Path) -> None:
    model = scripted(tmp_path, 'title = "Owls"\n[[turns]]\ntext = "one"\n')
    assert said(model, asked(purpose="title")) == "Owls"
    assert said(model, asked()) == "one"


@pytest.mark.covers("B-171", "S-003")
def test_chunks_reasoning_and_calls_come_as_written(tmp_path: Path) -> None:
    turn = {
        "text": "abcdefg",
        "chunk_size": 3,
        "reasoning": "hm",
        "tool_calls": [{"name": "search", "arguments": {"query": "owl"}}],
    }
    model = scripted(tmp_path, json.dumps({"turns": [turn, {"chunks": ["x", "y"]}]}), "play.json")
    pieces, finish = play(model, asked())
    told = [("hm", True, ""), ("abc", False, ""), ("def", False, ""), ("g", False, ""), ("", False, "search")]
    assert [(p.text, p.is_reasoning, p.tool) for p in pieces] == told
    assert finish.reason == "tool_calls"
    assert finish.reasoning == "hm"
    assert (finish.tool_calls[0].name, finish.tool_calls[0].arguments) == ("search", {"query": "owl"})
    assert [p.text for p in play(model, asked())[0]] == ["x", "y"]


@pytest.mark.covers("B-171")
def test_a_delay_is_cut_short_by_cancel_and_by_the_deadline(tmp_path: Path) -> None:
    model = scripted(tmp_path, '[[turns]]\ndelay_s = 60\ntext = "late"\nrepeat = true\n')
    stop = threading.Event()
    threading.Timer(0.05, stop.set).start()
    with pytest.raises(Cancelled):
        list(model.generate(ROUTE, asked(), stop))
    with pytest.raises(DeadlineExceeded):
        list(model.generate(ROUTE, asked(deadline_s=0.05), threading.Event()))


def test_an_error_comes_after_what_was_said(tmp_path: Path) -> None:
    answer = scripted(tmp_path, '[[turns]]\ntext = "so far"\nerror = "busy"\n').generate(ROUTE, asked(), threading.Event())
    assert next(answer) == Piece("so far")
    with pytest.raises(Busy):
        next(answer)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[turns]]\ntext = 'a'\n[[turns]]\nanswer = 'b'\n", "play.toml: turn 2 answer: unknown key"),
        ("[[turns]]\ntext = 5\n", "turn 1 text: has the wrong type"),
        ("[[turns]]\nmatch = '('\n", "turn 1 match: not a regular expression"),
        ("[[turns]]\nerror = 'oops'\n", "turn 1 error: 'oops' is not an outcome"),
        ("[[turns]]\ndelay_s = -1\n", "turn 1 delay_s: must be between"),
        ("[[turns]]\ntool_calls = [{arguments = {}}]\n", "turn 1 tool_calls 1 name: is missing"),
        ("turns = 'x'\n", "turns: has the wrong type"),
        ("[[turns]\n", "script .*play.toml: "),
    ],
)
def test_a_bad_file_names_the_turn_and_the_key(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        scripted(tmp_path, text)


def test_measure_names_its_parts(tmp_path: Path) -> None:
    model = scripted(tmp_path, "")
    spec = ToolSpec("search", "Find", {"type": "object"})
    measure = model.measure(ROUTE, asked(tools=(spec,)))
    assert set(measure.parts) == {"core", "tools", "messages"}
    assert measure.total == sum(measure.parts.values()) > 0


@pytest.mark.covers("B-171", "S-004")
def test_no_model_library_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from appliance.models.pool import Pool; from appliance.runtime.paths import Home\n"
        "from appliance.runtime.settings import Config, ModelSettings; from appliance.records import Ask, Message\n"
        "from appliance.clock import CancelToken\n"
        "pool = Pool(Home(Path(sys.argv[1])), Config(models=ModelSettings(script='play.toml')))\n"
        "print(list(pool.generate('local', Ask((), (Message('user', 'hi'),)), CancelToken()))[0].text)\n"
        "assert not {'llama_cpp', 'numpy', 'jinja2', 'requests', 'urllib3'} & set(sys.modules), 'imported'\n"
    )
    (tmp_path / "play.toml").write_text('[[turns]]\ntext = "hoot"\n')
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert (run.stdout, run.stderr) == ("hoot\n", "")
