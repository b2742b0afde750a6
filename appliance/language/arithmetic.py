"""Sums that are asked for in words or signs, such as "7 plus 5": small models cannot count, and a program can. Pure."""

import re
from collections.abc import Mapping
from fractions import Fraction

NUMBER = re.compile(r"-?\d{1,15}(?:[.,]\d{1,9})?")
MOST_TERMS = 20
SIGNS = {"+": "+", "-": "-", "−": "-", "–": "-", "*": "*", "x": "*", "×": "*", "·": "*", "/": "/", "÷": "/"}
PERCENT, SEPARATOR = "%", "separator"  # what words may stand for beside signs: "percent of", the comma in 1,000
APART = frozenset("-−–/")  # these need spaces around them: 555-0182 and 2026-11-23 are no sums


def result(text: str, words: Mapping[str, str]) -> str:
    """What a sum comes to, "" for anything that is none; `words` are those for signs in the person's language."""
    known = {**SIGNS, **{name: sign for name, sign in words.items() if sign != SEPARATOR}}
    is_apart = {name: not name.startswith("%") and (name in APART or name.isalpha() or " " in name) for name in known}
    apart, names = (
        "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True) if is_apart[name] is wanted)
        for wanted in (True, False)
    )
    said = without_separators(text, words).strip(" ?!.=").lower()
    parts = [part for part in re.split(rf"\s+({apart})\s+|\s*({names})\s*", said) if part]
    if not 3 <= len(parts) <= 2 * MOST_TERMS or not all(NUMBER.fullmatch(part) for part in parts[::2]):
        return ""
    numbers = [Fraction(part.replace(",", ".")) for part in parts[::2]]
    signs = [known[part] for part in parts[1::2]]
    terms = [numbers[0]]
    for sign, number in zip(signs, numbers[1:]):
        if sign == "/" and number == 0:
            return ""
        if sign == PERCENT:
            terms[-1] = terms[-1] * number / 100
        elif sign in "*/":
            terms[-1] = terms[-1] * number if sign == "*" else terms[-1] / number
        else:
            terms.append(number if sign == "+" else -number)
    total = sum(terms, Fraction(0))
    if total.denominator == 1:
        return str(total.numerator)
    return f"{float(total):.6g}" if abs(total) < 100_000 else f"{float(total):.2f}"


def without_separators(text: str, words: Mapping[str, str]) -> str:
    """A text whose numbers have no sign between thousands, "1,000" in English and "1.000" in German."""
    for name in (name for name, sign in words.items() if sign == SEPARATOR):
        text = re.sub(rf"(?<=\d){re.escape(name)}(?=\d{{3}}(?:\D|$))", "", text)
    return text
