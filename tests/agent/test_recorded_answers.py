"""Forms in which open models wrote calls, replayed from the stream to the next turn: what is run, what is shown, what goes back.

`recorded_answers.toml` names for each the family and where its form was seen; `docs/background/call-forms.md` has the counts.
"""

import functools
import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import test_families
from test_agent import Answer, events, shown, think

from appliance.agent.toolbox import Toolbox, ToolRules, tool
from appliance.policy.policy_file import Policy
from appliance.providers.token_stream import StreamedAnswer
from appliance.records import Ask, Message, Part, Piece, ToolSpec
from appliance.text import model_marks

ROOT = Path(__file__).parents[2]
FORMS = tomllib.loads((Path(__file__).parent / "recorded_answers.toml").read_text(encoding="utf-8"))["form"]
# The family of ours in whose words a conversation with theirs is rendered; the others get the words of Hermes.
OWN = {
    **dict.fromkeys(("Qwen 3.5", "Qwen 3.6", "Qwen 3.8", "Qwen 3 Coder", "Nemotron 3"), "qwen_tags"),
    **dict.fromkeys(("Llama 3.1", "Llama 3.2", "Llama 3.3"), "llama3"),
    **dict.fromkeys(("Mistral Small", "Devstral", "Ministral 3"), "ministral"),
    "gpt-oss": "harmony",
    "Gemma 4": "gemma",
    "FunctionGemma": "function_gemma",
    "Phi-4-mini": "phi",
    "Granite 3": "granite",
    "SmolLM3": "smollm3",
    "LFM2": "lfm",
    "MiniCPM 5": "minicpm",
}
DONE = "It is done."


@tool(group="test", is_read_only=True)
def read_note(path: str) -> str:
    """Read a note."""
    return f"Of {path}: with Ada."


@tool(group="test", is_read_only=True)
def find_notes(
    query: str, limit: int = 5, exact: bool = False, tags: list[str] | None = None, options: dict[str, Any] | None = None
) -> str:
    """Find notes."""
    return f"Found for {query}: {limit} {exact} {tags} {options}."


@tool(group="test")
def set_reminder(text: str, when: str) -> str:
    """Set a reminder."""
    return f"Will remind {when} of {text}."


@tool(group="test", is_read_only=True)
def list_tasks() -> str:
    """List the tasks."""
    return "No tasks."


@pytest.fixture(scope="module")
def toolbox() -> Iterator[Toolbox]:
    made = Toolbox([read_note, find_notes, set_reminder, list_tasks], {}, rules=ToolRules(Policy()))
    yield made
    made.close()
    for name in test_families.KINDS:
        test_families.template(name).close()


def streamed(text: str) -> Answer:
    """An answer as a provider hands it on, in pieces of three characters, thoughts apart."""
    ends_only = model_marks.THOUGHT_CLOSE.search(text) is not None and model_marks.THOUGHT_OPEN.search(text) is None
    answer, pieces = StreamedAnswer((), may_be_thinking=ends_only), list[Piece]()
    for at in range(0, len(text), 3):
        said = answer.feed(text[at : at + 3].encode())
        pieces += [Piece(thought, is_reasoning=True)] if (thought := answer.thoughts()) else []
        pieces += [Piece(said)] if said else []
    return [*pieces, Piece(answer.finish())]


def words(text: str) -> str:
    return "".join(text.split())


@functools.cache
def specs() -> tuple[ToolSpec, ...]:
    made = Toolbox([read_note, find_notes, set_reminder, list_tasks], {}, rules=ToolRules(Policy()))
    found = tuple(made.specs())
    made.close()
    return found


@pytest.mark.covers("E-127", "E-128")
@pytest.mark.parametrize("form", FORMS, ids=[f"{form['family']}: {form['what']}" for form in FORMS])
def test_a_form_is_read_run_shown_and_told_in_the_next_turn(form: dict[str, str], toolbox: Toolbox) -> None:
    said, wanted = form.get("text", ""), json.loads(form.get("read", "[]"), strict=False)
    steps, model = think(streamed(form["answer"]), [DONE], tools=toolbox)
    is_over = "text" in form and "read" not in form and "why" not in form
    assert len(model.asked) == (1 if is_over else 2)
    assert words(shown(steps)) == words(said + "" if is_over else said + DONE)
    strikes = [event.content for event in events(steps, "status_change")]
    if "why" in form:
        asked_again = model.asked[1][1].messages[-1]
        assert len(strikes) == 1 and form["why"] in strikes[0] and events(steps, "tool_use") == []
        assert asked_again.role == "user" and form["why"] in asked_again.content
        return
    assert strikes == []
    if is_over:
        return
    sent = model.asked[1][1].messages
    (made,) = [message for message in sent if message.tool_calls]
    assert [[call.name, call.arguments] for call in made.tool_calls] == wanted and words(made.content) == words(said)
    results = [message for message in sent if message.role == "tool"]
    assert [result.tool_call_id for result in results] == [call.id for call in made.tool_calls]
    assert all("is_error" not in result.content for result in results)
    # The next prompt holds each call and its result once, in the words of the family.
    ask = Ask((Part("persona", "Be kind."),), tuple(sent), specs(), "native")
    prompt = test_families.template(OWN.get(form["family"], "hermes")).render(ask)
    for result in results:
        assert prompt.count(told(result)) == sum(told(other) == told(result) for other in results)
    assert prompt.count("is_error") == 0


def told(result: Message) -> str:
    """The beginning of a result, which no escape of a template changes."""
    return result.content.partition('"')[0].partition("\\")[0].partition("<")[0].partition("\n")[0]


def test_the_forms_are_of_many_families_and_counted_in_the_documentation() -> None:
    counts = defaultdict(Counter)
    for form in FORMS:
        kind = "refused" if "why" in form else "read" if "read" in form else "shown"
        counts[form["family"]][kind] += 1
        assert form["seen"].startswith("https://")
    assert len(FORMS) >= 100 and len(counts) >= 30 and len({form["seen"] for form in FORMS}) >= 80
    page = (ROOT / "docs" / "background" / "call-forms.md").read_text(encoding="utf-8")
    for family, count in counts.items():
        row = f"| {family} | {count.total()} | {count['read']} | {count['shown']} | {count['refused']} |"
        assert row in page, row
