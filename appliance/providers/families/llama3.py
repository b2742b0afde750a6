"""Llama 3.1 to 3.3: a call is the whole answer, as JSON with "parameters", one in a turn."""

from appliance.providers.family import Family


class Llama3(Family):
    """Bare JSON; some models put <|python_tag|> before it."""

    name = "llama3"
    marks = ("", "<|python_tag|>")
    more_marks = ("<|eom_id|>",)
    is_bare = True
    has_single_calls = True
    arguments = "parameters"
    before = ""

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """Its turns begin with a header, and calls have parameters."""
        return "<|start_header_id|>" in template and '"parameters": ' in template and "ipython" in template
