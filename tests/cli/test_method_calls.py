"""Every call that the screen and the command line make is one that the core has, with arguments that it knows."""

import ast
from collections.abc import Iterator
from pathlib import Path

import appliance
from appliance.reference import docs

APPLIANCE = Path(appliance.__file__).parent
CALLS = ("call", "stream", "ask", "once", "_ask_core", "_call_for_run", "_call_broker")


def calls(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Methods that are named in a file where one is called, each with the arguments that are named there."""
    for node in ast.walk(ast.parse(path.read_text())):
        name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or name not in CALLS:
            continue
        texts = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        method = next((text for text in texts if "." in text and text.replace(".", "").replace("_", "").isalnum()), "")
        given = [one for one in node.args if isinstance(one, ast.Dict)][:1]
        keys = [key.value for one in given for key in one.keys if isinstance(key, ast.Constant)]
        if method:
            yield method, [str(key) for key in keys]


def test_screen_and_command_line_call_what_there_is() -> None:
    known = {one.mark.name: {field.name for field in one.signature.fields} for one in docs.methods().values()}
    paths = [path for room in ("tui", "cli", "console") for path in (APPLIANCE / room).rglob("*.py")]
    found = [(path, *call) for path in paths for call in calls(path)]
    assert len(found) > 100
    wrong = [f"{path.name}: {method} {keys}" for path, method, keys in found if not set(keys) <= known.get(method, {"-"})]
    wrong += [f"{path.name}: {method}" for path, method, _ in found if method not in known]
    assert wrong == []
