"""Turns a conversation into the exact text a local model was trained to read, by the template in its file.

Templates disagree about what they accept: some know no system or tool role, some want roles to alternate.
Each is tried once when it is loaded. They are programs by whoever made the file, and run in a process with limits.
Text from outside cannot forge a turn: names of control tokens inside it are broken up. Knows nothing about tokens or the model.
"""

import json
import re
from collections.abc import Sequence

from appliance.errors import BadInput
from appliance.models.providers.template_process import Renderer
from appliance.records import Ask, Message

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = (
    "{% for m in messages %}### {{ m['role'] }}\n{{ m['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### assistant\n{% endif %}"
)

Turn = dict[str, str]


class Template:
    """A model's chat template, with what it turned out to support."""

    def __init__(self, source: str, *, start: str, end: str, controls: Sequence[str]) -> None:
        names = sorted((c for c in controls if len(c) > 2), key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, names)) or "(?!)")
        fallback = CHATML if "<|im_start|>" in controls else PLAIN
        self._renderer = Renderer(source or fallback, {"eos_token": end, "bos_token": start})
        try:
            self._try([{"role": "user", "content": "?"}])
        except BadInput as error:
            self.close()
            text = f"the model's chat template cannot be used: {error.message}"
            raise BadInput(text, hint="use another file of this model") from None
        self.has_system = self._knows("system", before=True)
        self.has_tool = "tool" in source and self._knows("tool", before=False)
        # Gemma's and Mistral's templates refuse two messages of one role in a row; joining them suits every model.
        self.separator = "\n\n"

    def close(self) -> None:
        """End its process; it may be used again."""
        self._renderer.close()

    def render(self, ask: Ask) -> str:
        """The whole prompt, up to where the model begins to answer."""
        system = system_text(ask)
        turns: list[Turn] = [{"role": "system", "content": self._clean(system)}] if system else []
        names = {call.id: call.name for message in ask.messages for call in message.tool_calls}
        for message in ask.messages:
            self._append(turns, self._turn(message, names))
        if system and not self.has_system:
            first = turns.pop(0)["content"]
            if turns and turns[0]["role"] == "user":
                turns[0]["content"] = first + self.separator + turns[0]["content"]
            else:
                turns.insert(0, {"role": "user", "content": first})
        try:
            return self._try(turns)
        except BadInput as error:
            roles = ", ".join(dict.fromkeys(turn["role"] for turn in turns))
            raise BadInput(f"the model's chat template refuses the conversation ({roles}): {error.message}") from None

    def _turn(self, message: Message, names: dict[str, str]) -> Turn:
        if message.role == "tool" and not self.has_tool:
            name = names.get(message.tool_call_id) or message.tool_call_id or "the tool"
            return {"role": "user", "content": self._clean(f"Result of {name}:\n{message.content}")}
        return {"role": message.role, "content": self._clean(spoken(message))}

    def _append(self, turns: list[Turn], turn: Turn) -> None:
        if turns and turns[-1]["role"] == turn["role"] != "tool":
            turns[-1]["content"] += self.separator + turn["content"]
        else:
            turns.append(turn)

    def _clean(self, text: str) -> str:
        return self._controls.sub(lambda found: found[0][0] + " " + found[0][1:], text)

    def _try(self, turns: list[Turn]) -> str:
        return self._renderer.render(turns)

    def _knows(self, role: str, *, before: bool) -> bool:
        probe, user = {"role": role, "content": "owl-probe"}, {"role": "user", "content": "?"}
        turns = [probe, user] if before else [user, {"role": "assistant", "content": "{}"}, probe]
        try:
            return "owl-probe" in self._try(turns)
        except BadInput:
            return False


def system_text(ask: Ask) -> str:
    """The system text as every provider sends it."""
    return "\n\n".join(part.text for part in ask.system)


def spoken(message: Message) -> str:
    """What was said, its pictures named and its calls as the lines of JSON they were."""
    images = [image.reference for image in message.images]
    calls = [json.dumps({"name": c.name, "arguments": c.arguments}, ensure_ascii=False) for c in message.tool_calls]
    return "\n".join([message.content] * bool(message.content) + images + calls)
