"""Sentence templates: `(add|create) [a] task to {text}` says which sentences ask for something, and which words are its parts.

The notation is that of Home Assistant's recogniser hassil, so that sentences written for it can be taken over: `[...]` may be
left out, `(a|b)` is a choice, `<name>` stands for a rule of the same file, `{name}` for any words. A library was not used
because ours must give back the person's own words with their case and punctuation, and hassil normalises them. Compiled to
regular expressions that have no nested repetition, so that a long message costs little. Case does not count, nor do commas
and more than one space between words.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from appliance.errors import BadInput

TOKEN = re.compile(r"\s+|[\[\]()|]|<\w+>|\{\w+\}|[:?!]|[^\s\[\]()|<>{}:?!]+")
GAP = r"[\s,¿¡]*"
TEXT, WORD = r"\S.*?", r"[^\W\d_]+"  # a part of a sentence; how urgent something is takes one word
MAX_DEPTH = 8
DASHES = str.maketrans({"’": "'", "‘": "'", "–": "-", "—": "-"})


@lru_cache(maxsize=4096)
def _compile_expression(expression: str) -> "re.Pattern[str]":
    return re.compile(expression, re.IGNORECASE | re.DOTALL)


def compiled(template: str, rules: Mapping[str, str], before: str = "", after: str = "") -> "re.Pattern[str]":
    """The pattern of a template for whole messages, with those that may stand before and after; BadInput says what is wrong."""
    parts = [expression(part, rules) for part in (before, template, after)]
    return _compile_expression(rf"[\s¿¡]*{GAP.join(part for part in parts if part)}[\s.!?…]*\Z")


def expression(template: str, rules: Mapping[str, str], depth: int = 0) -> str:
    if depth > MAX_DEPTH:
        raise BadInput(f"the rules of {template!r} lead to themselves", hint="a rule may not use itself")
    made: list[str] = []
    closing: list[str] = []
    for token in TOKEN.findall(template):
        if token.isspace():
            made.append(GAP)
        elif token == "[":
            made.append("(?:")
            closing.append("]")
        elif token == "(":
            made.append("(?:")
            closing.append(")")
        elif token in ("]", ")"):
            if not closing or closing.pop() != token:
                raise BadInput(f"{template!r} closes {token} that it did not open", hint="count its brackets")
            made.append(")?" if token == "]" else ")")
        elif token == "|":
            made.append("|")
        elif token.startswith("<"):
            if token[1:-1] not in rules:
                raise BadInput(f"{template!r} uses the rule {token}, which there is not", hint=f"there are {', '.join(rules)}")
            made.append(f"(?:{expression(rules[token[1:-1]], rules, depth + 1)})")
        elif token.startswith("{"):
            made.append(rf"(?P<{token[1:-1]}>{WORD if token == '{level}' else TEXT})")
        elif token in (":", "?", "!"):
            made.append(rf"\s*{re.escape(token)}")
        else:
            made.append(_word_pattern(token))
    if closing:
        raise BadInput(f"{template!r} leaves {closing[-1]} open", hint="count its brackets")
    return "".join(made)


def _word_pattern(token: str) -> str:
    found = re.escape(token.translate(DASHES)).replace("'", "['’‘]?").replace(r"\-", "[-–—\\s]?")
    return (r"\b" if token[0].isalnum() else "") + found + (r"\b" if token[-1].isalnum() else "")
