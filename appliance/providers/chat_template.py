"""Turns a conversation into the exact text a local model was trained to read, by the template in its file.

Templates disagree about what they accept: some know no system or tool role, some want roles to alternate.
Each is tried once when it is loaded. They are programs by whoever made the file, and run in a process with limits.
In the native dialect tools, calls and results are written as the model's family has them; what its template leaves out is
written here, as the family says. In any other they are in our own words.
Text from outside cannot forge a turn, a call or a result: names of control tokens and marks inside it are broken up. Knows nothing
about tokens or the model.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from appliance.errors import BadInput
from appliance.providers import families
from appliance.providers.family import Family
from appliance.providers.template_process import Renderer
from appliance.records import Ask, Message, ToolCall, ToolSpec

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = (
    "{% for m in messages %}### {{ m['role'] }}\n{{ m['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### assistant\n{% endif %}"
)
NO_RESULT = "No result of this call was kept."
NOTHING_SAID = "…"  # between a result and what the person says next, where roles have to alternate
ID_CHARS = 9
# How templates call the switch of thoughts, and its values for off and on: the first ones that a template tells apart.
SWITCHES: tuple[tuple[str, Any, Any], ...] = (
    ("enable_thinking", False, True),
    ("thinking", False, True),
    ("reasoning_effort", "low", "medium"),
    ("reasoning_effort", "no_think", "high"),
)
# The word in a system text that switches them off where a template knows no variable for it.
NO_THOUGHTS = "/no_think"
# How templates are told that there are no tools, the way that most take first: as nothing, not at all, as an empty list.
NO_TOOLS: tuple[dict[str, Any], ...] = (dict.fromkeys(("tools", "functions", "function_call", "tool_choice")), {}, {"tools": []})
PROBE = ToolSpec("owl_probe", "owl-description", {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
PROBE_CALL = ToolCall("owlprobe1", "owl_probe", {"a": "owl-argument"})

Turn = dict[str, Any]
ThoughtSwitch = tuple[str, dict[str, Any]]


class Template:
    """A model's chat template, with what it turned out to support.

    `family` is None where it knows no tools of ours. `thoughts` switches them off and on: for either, what the system
    text ends with, and variables; both are the same where nothing switches them.
    """

    # Gemma's and Mistral's templates refuse two messages of one role in a row; joining them suits every model.
    separator = "\n\n"

    def __init__(self, source: str, *, start: str, end: str, controls: Sequence[str]) -> None:
        fallback = CHATML if "<|im_start|>" in controls else PLAIN
        self._renderer = Renderer(source or fallback, {"eos_token": end, "bos_token": start})
        try:
            self._without = self._try_plain()  # what it is given where no tools are offered
        except BadInput as error:
            self.close()
            text = f"the model's chat template cannot be used: {error.message}"
            raise BadInput(text, hint="use another file of this model") from None
        self.has_system = self._knows_role("system", before=True)
        self.thoughts = self._find_switch(source)
        self.has_tool = "tool" in source and self._knows_role("tool", before=False)
        self.family = self._try_family(families.find(source))
        marks = (*self.family.marks, *self.family.more_marks) if self.family is not None else ()
        names = sorted({c for c in (*controls, *marks) if len(c) > 2}, key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, names)) or "(?!)")

    def close(self) -> None:
        """End its process; it may be used again."""
        self._renderer.close()

    def family_of(self, ask: Ask) -> Family | None:
        """The family in whose words a request is rendered; None for our own."""
        return self.family if ask.dialect == "native" else None

    def render(self, ask: Ask) -> str:
        """The whole prompt, up to where the model begins to answer, or to name a tool where it must call one."""
        system, family = system_text(ask), self.family_of(ask)
        variables, system = self._without, self._clean_text(system)
        if family is not None and ask.tools:
            told = self._clean_all(family.variables(ask.tools))
            if self._tells_tools:
                variables = told
            else:
                system += family.tools_text(*told.values())
        word, switch = self.thoughts[ask.may_think]
        system, variables = system + word, variables | switch
        turns: list[Turn] = [{"role": "system", "content": system}] if system else []
        names = {call.id: call.name for message in ask.messages for call in message.tool_calls}
        messages = ask.messages if family is None else _pair_calls(ask.messages, has_single_calls=family.has_single_calls)
        for message in messages:
            self._append_turn(turns, self._build_turn(message, names, family))
        if system and not self.has_system:
            first = turns.pop(0)["content"]
            if turns and turns[0]["role"] == "user":
                turns[0]["content"] = first + self.separator + turns[0]["content"]
            else:
                turns.insert(0, {"role": "user", "content": first})
        try:
            text = self._renderer.render(turns, variables)
        except BadInput as error:
            roles = ", ".join(dict.fromkeys(turn["role"] for turn in turns))
            raise BadInput(f"the model's chat template refuses the conversation ({roles}): {error.message}") from None
        return text + family.opening if family is not None and ask.must_call and ask.tools else text

    def _build_turn(self, message: Message, names: dict[str, str], family: Family | None) -> Turn:
        if message.role == "tool":
            return self._build_result(message, names, family)
        if family is None or not message.tool_calls:
            return {"role": message.role, "content": self._clean_text(spoken(message))}
        said = self._clean_text(spoken(message, has_calls=False))
        calls = [ToolCall(c.id, self._clean_text(c.name), self._clean_all(c.arguments)) for c in message.tool_calls]
        if not self._writes_calls:
            return {"role": "assistant", "content": "\n".join([said] * bool(said) + [family.written(calls)])}
        functions = [
            {"id": _shorten_id(c.id, family), "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in calls
        ]
        return {"role": "assistant", "content": said, "tool_calls": functions}

    def _build_result(self, message: Message, names: dict[str, str], family: Family | None) -> Turn:
        text, name = self._clean_text(message.content), self._clean_text(names.get(message.tool_call_id, ""))
        if family is None:
            if self.has_tool:
                return {"role": "tool", "content": text}
            return {"role": "user", "content": f"Result of {name or self._clean_text(message.tool_call_id) or 'the tool'}:\n{text}"}
        if not name:  # nobody knows of which call
            return {"role": "user", "content": f"Result of the tool:\n{text}"}
        if not self._reads_results:
            return {"role": "user", "content": family.returned(name, text)}
        return {
            "role": family.result_role,
            "content": text,
            "name": name,
            "tool_call_id": _shorten_id(message.tool_call_id, family),
        }

    def _append_turn(self, turns: list[Turn], turn: Turn) -> None:
        before = turns[-1] if turns else {"role": ""}
        is_of_calls = any("tool_calls" in one or "tool_call_id" in one for one in (before, turn))
        if before["role"] == turn["role"] != "tool" and not is_of_calls:
            before["content"] += self.separator + turn["content"]
            return
        if "tool_call_id" in before and turn["role"] == "user" and self._wants_answers:
            turns.append({"role": "assistant", "content": NOTHING_SAID})
        turns.append(turn)

    def _clean_text(self, text: str) -> str:
        """A text in which no mark stands, not inside another one either."""
        return self._controls.sub(lambda found: f"{found[0][0]} {self._clean_text(found[0][1:])}", text)

    def _clean_all(self, value: Any) -> Any:
        """A value of JSON, every text of it cleaned."""
        if isinstance(value, dict):
            return {self._clean_text(name): self._clean_all(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._clean_all(inner) for inner in value]
        return self._clean_text(value) if isinstance(value, str) else value

    # -- what it supports ---------------------------------------------------------------------------

    def _try_plain(self) -> dict[str, Any]:
        """Render one question; the variables that tell the template of no tools."""
        plain = [{"role": "user", "content": "?"}]
        refused: BadInput | None = None
        for without in NO_TOOLS:
            try:
                self._renderer.render(plain, without)
            except BadInput as error:
                if not self._renderer.is_running:
                    raise  # it would take as much once more
                refused = refused or error
            else:
                return without
        raise refused or AssertionError("NO_TOOLS is empty")

    def _find_switch(self, source: str) -> tuple[ThoughtSwitch, ThoughtSwitch]:
        """What switches thoughts off, and on: of what the source names, the first that changes anything."""
        turns: list[Turn] = [{"role": "user", "content": "?"}]
        for name, *values in SWITCHES:
            off, on = (self._render_turns(turns, {**self._without, name: value}) if name in source else "" for value in values)
            if off and on and off != on:
                return ("", {name: values[0]}), ("", {name: values[1]})
        if NO_THOUGHTS in source and self.has_system:
            on, off = (self._render_turns([{"role": "system", "content": f"? {word}"}, *turns]) for word in ("", NO_THOUGHTS))
            if off.replace(NO_THOUGHTS, "").split() != on.split():
                return (f"{self.separator}{NO_THOUGHTS}", {}), ("", {})
        return ("", {}), ("", {})

    def _knows_role(self, role: str, *, before: bool) -> bool:
        probe, user = {"role": role, "content": "owl-probe"}, {"role": "user", "content": "?"}
        turns = [probe, user] if before else [user, {"role": "assistant", "content": "{}"}, probe]
        return "owl-probe" in self._render_turns(turns)

    def _try_family(self, family: Family | None) -> Family | None:
        """The family, if the template really tells the model about tools; notes what else it writes by itself."""
        if family is None:
            return None
        variables = family.variables((PROBE,))
        user: Turn = {"role": "user", "content": "?"}
        self._tells_tools = "owl-description" in self._render_turns([user], variables)
        if not self._tells_tools and not (self.has_system and family.tools_text(())):
            return None
        function = {"name": PROBE_CALL.name, "arguments": PROBE_CALL.arguments}
        called = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": PROBE_CALL.id, "type": "function", "function": function}],
        }
        told = {"role": family.result_role, "content": "owl-result", "name": PROBE_CALL.name, "tool_call_id": PROBE_CALL.id}
        self._writes_calls = "owl-argument" in self._render_turns([user, called], variables)
        written = called if self._writes_calls else {"role": "assistant", "content": family.written((PROBE_CALL,))}
        self._reads_results = "owl-result" in self._render_turns([user, written, told], variables)
        self._wants_answers = self._reads_results and not self._render_turns([user, written, told, user], variables)
        return family

    def _render_turns(self, turns: Sequence[Turn], variables: dict[str, Any] | None = None) -> str:
        """What becomes of some turns, "" where the template refuses them."""
        try:
            return self._renderer.render(turns, self._without if variables is None else variables)
        except BadInput:
            return ""


def find_family(source: str) -> str:
    """The name of the family in whose format a template tells of tools, as it turns out; "" where our own words are used."""
    if families.find(source) is None:
        return ""
    template = Template(source, start="", end="", controls=())
    template.close()
    return template.family.name if template.family is not None else ""


def system_text(ask: Ask) -> str:
    """The system text as every provider sends it."""
    return "\n\n".join(part.text for part in ask.system)


def spoken(message: Message, *, has_calls: bool = True) -> str:
    """What was said, its pictures named and its calls as the lines of JSON they were."""
    images = [image.reference for image in message.images]
    calls = [json.dumps({"name": c.name, "arguments": c.arguments}, ensure_ascii=False) for c in message.tool_calls]
    return "\n".join([message.content] * bool(message.content) + images + calls * has_calls)


def _pair_calls(messages: Sequence[Message], *, has_single_calls: bool) -> Iterator[Message]:
    """Messages in which every call is followed by its result; each call in a turn of its own where only that is known."""
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        if not message.tool_calls:
            yield message
            continue
        results: dict[str, Message] = {}
        while rest and rest[0].role == "tool":
            result = rest.pop(0)
            results[result.tool_call_id] = result
        groups = [(call,) for call in message.tool_calls] if has_single_calls else [message.tool_calls]
        for place, calls in enumerate(groups):
            yield Message("assistant", message.content if place == 0 else "", tool_calls=tuple(calls))
            for call in calls:
                yield results.pop(call.id, Message("tool", NO_RESULT, tool_call_id=call.id))
        yield from results.values()


def _shorten_id(ours: str, family: Family) -> str:
    """An id of a call as the family's template takes it."""
    return ours if family.has_free_ids else hashlib.sha256(ours.encode("utf-8", "replace")).hexdigest()[:ID_CHARS]
