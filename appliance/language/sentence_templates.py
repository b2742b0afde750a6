"""Sentence templates: `(add|create) [a] task to {text}` says which sentences ask for something, and which words are its parts.

The notation is that of Home Assistant's recogniser hassil, so that sentences written for it can be taken over: `[...]` may be
left out, `(a|b)` is a choice, `<name>` stands for a rule of the same file, `{name}` for any words. A library was not used
because ours must give back the person's own words with their case and punctuation, and hassil normalises them. Compiled to
regular expressions that have no nested repetition, so that a long message costs little. Case does not count, nor do commas
and more than one space between words.
"""

import re
from collections.abc import Collection, Mapping
from functools import cached_property

from msgspec import Struct

from appliance.errors import BadInput
from appliance.text.invisible import normalized

TOKEN = re.compile(r"\s+|[\[\]()|]|<\w+>|\{\w+\}|[:?!]|[^\s\[\]()|<>{}:?!]+")
GAP = r"[\s,¿¡]*"
TEXT, LONG_TEXT = r"[^\s.!?…].*?", r"[^\s.!?…].*"  # a part of a sentence, short or long, which is more than a full stop
WORD = r"[^\W\d_]+"  # how urgent something is takes one word
ANY = "xyz"  # names of parts that nobody reads
MARKS = " .,:;!?…¿¡\"'"
MOST = "items"  # the name of a part that takes as many words as it can
MAX_DEPTH = 8
PLAIN_WORD = re.compile(r"[^\W_]+")
APOSTROPHES = re.compile(r"(?<=\w)['’‘](?=\w)")
DASHES = str.maketrans({"’": "'", "‘": "'", "–": "-", "—": "-"})


class SentenceTemplate(Struct, frozen=True, dict=True):
    """A template with what may stand before and after it, made into a regular expression at its first use: most are never tried.

    `needs`: of each of these sets a message must have one word, or it cannot fit. `known` is that of `expression`.
    """

    template: str
    rules: Mapping[str, str]
    before: str
    after: str
    needs: tuple[frozenset[str], ...]
    known: dict[str, str]

    @property
    def expression(self) -> str:
        """Its regular expression; BadInput says what is wrong with the template."""
        parts = [expression(part, self.rules, known=self.known) for part in (self.before, self.template, self.after)]
        return rf"[\s¿¡]*{GAP.join(part for part in parts if part)}[\s.!?…]*\Z"

    @cached_property
    def pattern(self) -> "re.Pattern[str]":
        return re.compile(self.expression, re.IGNORECASE | re.DOTALL)

    def may_fit(self, words: Collection[str]) -> bool:
        """Whether a text with these words, of `plain_words`, may fit."""
        for one in self.needs:
            if one.isdisjoint(words):
                return False
        return True

    def match(self, text: str, words: Collection[str]) -> "re.Match[str] | None":
        """How the whole text fits; `words` are those of `plain_words(text)`."""
        found = self.pattern.match(text) if self.may_fit(words) else None
        is_empty = found is not None and any(part is not None and not part.strip(MARKS) for part in found.groupdict().values())
        return None if is_empty else found  # "make that nicer?" names no text


def make_sentence(template: str, rules: Mapping[str, str], before: str, after: str, known: dict[str, str]) -> SentenceTemplate:
    return SentenceTemplate(template, rules, before, after, tuple(_needed_words(template, rules)), known)


def plain_words(text: str) -> frozenset[str]:
    """The words of a text in small letters, of one with an apostrophe or a hyphen its parts and all of it."""
    text = normalized("NFC", text).lower()
    return frozenset(PLAIN_WORD.findall(text)) | frozenset(PLAIN_WORD.findall(APOSTROPHES.sub("", text)))


def _needed_words(template: str, rules: Mapping[str, str], depth: int = 0) -> list[frozenset[str]]:
    """Sets of words, one of each of which stands in every message that fits; so few regular expressions have to be tried."""
    found: list[frozenset[str]] = []
    level, group = 0, [""]
    for token in TOKEN.findall(template):
        if token in "[(" and token:
            level += 1
            if level == 1:
                kind, group = token, [""]
                continue
        elif token in "])" and token:
            level -= 1
            if level == 0:
                if kind == "(":
                    each = [_needed_words(one, rules, depth + 1) for one in group]
                    if all(each):
                        found.append(frozenset().union(*(min(one, key=len) for one in each)))
                continue
        if level == 0:
            if token.startswith("<") and depth < MAX_DEPTH and token[1:-1] in rules:
                found += _needed_words(rules[token[1:-1]], rules, depth + 1)
            elif token[0].isalnum():
                found.append(frozenset(_forms(token)))
        elif token == "|" and level == 1:
            group.append("")
        else:
            group[-1] += token
    return found


def _forms(token: str) -> list[str]:
    """The beginnings of how a word of a template may be written: "don't" and "dont", "to-do" and "todo"."""
    plain = PLAIN_WORD.findall(token.lower())
    return [plain[0], "".join(plain)] if plain else []


def expression(template: str, rules: Mapping[str, str], depth: int = 0, known: dict[str, str] | None = None) -> str:
    """What a template stands for; `known` keeps what each rule does, which hundreds of sentences use."""
    known = {} if known is None else known
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
            if (name := token[1:-1]) not in known:
                known[name] = f"(?:{expression(rules[name], rules, depth + 1, known)})"
            made.append(known[name])
        elif token.startswith("{"):
            name, text = token[1:-1], WORD if token == "{level}" else LONG_TEXT if token == f"{{{MOST}}}" else TEXT
            made.append(text if name in ANY else rf"(?P<{name}>{text})")
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
