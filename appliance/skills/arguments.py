"""Words after `/name`: how they are split, checked and put into a skill's text.

Placeholders are `$ARGUMENTS` (everything as typed), `$1` to `$9`, and `$name` for a declared argument whose name is an
identifier. A longer name wins over a shorter one that begins it, and `$10` is `$1` followed by 0.
"""

import re
from collections.abc import Sequence

from appliance.errors import BadInput
from appliance.skills.skill_file import IDENTIFIER, Argument, Skill

WORD = re.compile(r'"([^"]*)"|(\S+)')
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
    body, count = pattern.subn(value_of, skill.body)
    return f"{body}\n\n{typed.strip()}" if typed.strip() and not count else body


def _identifiers(arguments: Sequence[Argument]) -> list[str]:
    return [one.name for one in arguments if IDENTIFIER.fullmatch(one.name) and one.name != "ARGUMENTS"]
