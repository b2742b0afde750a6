"""MiniCPM 5: `<function name="NAME"><param name="ARGUMENT">value</param></function>`."""

import re
from typing import Any

from appliance.providers.families.qwen_tags import QwenTags as Base
from appliance.records import ToolCall

BLOCKED = re.compile(r"[<&\n]")


class MiniCpm(Base):
    """A text with <, & or line breaks stands in a CDATA block."""

    name = "minicpm"
    marks = ('<function name="',)
    closing = before = ""
    first, last = '">', "</function>"
    opened, closed = '<param name="{}">', "</param>"
    rules = (
        'written ::= [^<&\\x00-\\x1f\\x7f]* | "<![CDATA[" ([^\\]\\x00-\\x08\\x0b-\\x1f\\x7f] | "]" [^\\]\\x00-\\x1f\\x7f])* "]]>"\n'
        'truth ::= "true" | "false" | "True" | "False"\n'
    )

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It shows the elements."""
        return "<function name=" in template and "<param name=" in template

    def _blank(self) -> str:
        return '""'

    def _named(self) -> str:
        return '""'

    def _one(self, call: ToolCall) -> str:
        return super()._one(call).removeprefix("<function=")

    def _text_of(self, value: Any) -> str:
        text = super()._text_of(value)
        return f"<![CDATA[{text}]]>" if BLOCKED.search(text) else text
