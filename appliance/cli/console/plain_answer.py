"""An answer for those who hear or feel a terminal: whole lines, and every state in words, with nothing drawn twice."""

import json
from typing import Any, TextIO

from appliance.cli.console.terminal import Answer, say


class PlainAnswer(Answer):
    """Says when the assistant thinks, answers, works and has ended; text is written as soon as its line is whole."""

    def __init__(self, out: TextIO, aside: TextIO) -> None:
        super().__init__(out, aside)
        self._line = ""  # what has come of a line that is not whole
        self._is_speaking = False

    def listen(self, name: str, value: dict[str, Any]) -> None:
        """One notification."""
        assert self._aside is not None
        kind = value.get("kind") if name == "event" else name
        if name == "accepted":
            self.run = value["run"]
            say("Thinking.", self._aside)
        elif name == "delta":
            self._write_lines(value["text"])
        elif kind == "tool_use":
            self.end_line()
            given = ", ".join(f"{k} {json.dumps(v, ensure_ascii=False)}" for k, v in (value["input"] or {}).items())
            say(f"Working: {value['tool']}{f' with {given}' if given else ''}.", self._aside)
            self.events.append(value)
        elif kind == "tool_result":
            is_good = int(value["status"]) < 400
            say(f"Done: {value['tool']}." if is_good else f"Failed: {value['tool']}, {value['outcome']}.", self._aside)
            self.events.append(value)
        elif name == "proposal":
            self.end_line()  # what waits is told whole when the answer stands still
        else:
            super().listen(name, value)

    def end_line(self) -> None:
        """What is left of the last line, and that the answer is whole."""
        rest, self._line = self._line, ""
        if rest:
            self._write_text(rest)
        super().end_line()
        if self._is_speaking:
            self._is_speaking = False
            say("End of the answer.", self._aside)

    # -- inside -------------------------------------------------------------------------------------

    def _write_lines(self, text: str) -> None:
        if not self._is_speaking:
            self._is_speaking = True
            say("Answer:", self._aside)
        whole, newline, self._line = (self._line + text).rpartition("\n")
        if newline:
            self._write_text(whole + newline)
