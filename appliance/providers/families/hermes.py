"""Calls as JSON between <tool_call> and </tool_call>: Hermes 2 and 3, Qwen 2.5 and 3, Granite 4 and others."""

import re

from appliance.providers.family import Family

# The JSON of a call right behind its tag, as a template shows or writes it.
SHOWN = re.compile(r"""<tool_call>(?:\\n|\s|['"}{-])*\{\\?"name\\?":""")


class Hermes(Family):
    """Tools in <tools>, results in <tool_response>."""

    name = "hermes"
    marks = ("<tool_call>",)
    closing = "\n</tool_call>"
    more_marks = ("</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>")

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It shows the JSON of a call between the tags."""
        is_other = any(sign in template for sign in ("<function=", "xml_tools", "<arg_key>"))
        return SHOWN.search(template) is not None and "arguments" in template and not is_other

    def returned(self, name: str, text: str) -> str:
        """In tags, as the other templates of this family have it."""
        return f"<tool_response>\n{text}\n</tool_response>"
