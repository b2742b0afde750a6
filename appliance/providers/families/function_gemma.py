"""FunctionGemma: `<start_function_call>call:NAME{argument:value}<end_function_call>`, texts between <escape>."""

from msgspec.structs import replace

from appliance.providers.families.gemma import Gemma as Base
from appliance.providers.value_styles import GEMMA

NAMES = ("function_declaration", "function_call", "function_response")


class FunctionGemma(Base):
    """Gemma 3 of 270 million parameters, trained to call functions."""

    name = "function_gemma"
    marks = ("<start_function_call>",)
    closing = "<end_function_call>"
    more_marks = ("<escape>", *(f"<{end}_{name}>" for name in NAMES for end in ("start", "end")))
    style = replace(GEMMA, quote="<escape>", char='\nchar ::= [^<\\x00-\\x08\\x0b-\\x1f\\x7f] | "<" [^e<\\x00-\\x1f\\x7f]\n')

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It has the mark."""
        return "<start_function_call>" in template

    def returned(self, name: str, text: str) -> str:
        """Between the marks that the model has for it."""
        return f"<start_function_response>response:{name}{{value:<escape>{text}<escape>}}<end_function_response>"
