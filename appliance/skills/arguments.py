"""Words after `/name`: how they are split, checked and put into a skill's text.

Placeholders are `$ARGUMENTS` (everything as typed), `$1` to `$9`, and `$name` for a declared argument whose name is an
identifier. A longer name wins over a shorter one that begins it, and `$10` is `$1` followed by 0.
"""

import re
from collections.abc import Sequence

from appliance.errors import BadInput
from appliance.records import ShortForm
from appliance.skills.skill_file import IDENTIFIER, Argument, Skill

WORD = re.compile(r'"([^"]*)"|(\S+)')
MAX_PLAIN = 600  # characters of a text that is one request
STEPS = re.compile(r"^\s*(?:2[.)]|[-*]\s)|`[a-z]+(?:_[a-z]+)*`", re.MULTILINE)  # a list, or the name of a tool
ANY_PLACEHOLDER = re.compile(r"\$\w+")
PLACEHOLDER = re.compile(r"\$(ARGUMENTS\b|[1-9])")


def split_arguments(text: str) -> list[str]:
    """Words by white space; what stands in double quotes stays together."""
    return [quoted if quoted or not bare else bare for quoted, bare in WORD.findall(text)]


def has_placeholders(skill: Skill) -> bool:
    """Whether the text waits for words after the name."""
    names = _identifiers(skill.arguments)
    body = skill.body
    return bool(PLACEHOLDER.search(body) or any(re.search(rf"\${re.escape(name)}\b", body) for name in names))


def usage_of(skill: Skill) -> str:
    """How the command is written: `/name <required> [optional] [optional=default]`."""
    shown = []
    for one in skill.arguments:
        if one.default is not None:
            shown.append(f"[{one.name}={one.default}]")
        else:
            shown.append(f"<{one.name}>" if one.is_required else f"[{one.name}]")
    return " ".join([f"/{skill.name}", *shown])


def render(skill: Skill, typed: str) -> str:
    """The text that a model gets for `/name typed`; BadInput with the usage when a required argument is missing.

    Without any placeholder the words are added below the text, so that nothing a person typed is lost.
    """
    body, count = _fill(skill, skill.body, typed)
    return f"{body}\n\n{typed.strip()}" if typed.strip() and not count else body


def short_form(skill: Skill, typed: str) -> ShortForm:
    """What a model is given for `/name typed` that can follow one sentence and no steps.

    The skill's own `small` sentences; else its text, when that is short and names no tool; else nothing.
    """
    if skill.small:
        made = [_fill(skill, one, typed) for one in skill.small]
        is_missing = not typed.strip() and all(count for _, count in made)
        has_words = bool(typed.strip()) and any(count for _, count in made)  # then a sentence without a place for them is not meant
        sentences = ("",) if is_missing else tuple(text for text, count in made if bool(count) is has_words)
        return ShortForm(sentences, skill.body)
    is_plain = len(skill.body) <= MAX_PLAIN and not STEPS.search(skill.body)
    return ShortForm((render(skill, typed),) if is_plain else (), ANY_PLACEHOLDER.sub("", skill.body))


def _fill(skill: Skill, text: str, typed: str) -> tuple[str, int]:
    """A text with what was typed in place of its placeholders, and how many there were."""
    words = split_arguments(typed)
    values: dict[str, str] = {}
    for number, one in enumerate(skill.arguments):
        if number < len(words):
            values[one.name] = words[number]
        elif one.default is not None:
            values[one.name] = one.default
        elif one.is_required:
            raise BadInput(f"Usage: {usage_of(skill)}", outcome="invalid_arguments")
        else:
            values[one.name] = ""
    names = sorted(_identifiers(skill.arguments), key=len, reverse=True)
    pattern = re.compile(
        "|".join(
            [*(rf"\$(?P<a{n}>{re.escape(name)})\b" for n, name in enumerate(names)), r"\$(?P<all>ARGUMENTS)\b", r"\$(?P<at>[1-9])"]
        )
    )

    def value_of(found: "re.Match[str]") -> str:
        for number, name in enumerate(names):
            if found[f"a{number}"] is not None:
                return values[name]
        if found["all"] is not None:
            return typed.strip()
        place = int(found["at"]) - 1
        if place < len(words):
            return words[place]
        return values[skill.arguments[place].name] if place < len(skill.arguments) else ""

    # One pass: what a person typed is never taken for a placeholder itself.
    return pattern.subn(value_of, text)


def _identifiers(arguments: Sequence[Argument]) -> list[str]:
    return [one.name for one in arguments if IDENTIFIER.fullmatch(one.name) and one.name != "ARGUMENTS"]
