"""Sums in words or signs ("7 plus 5"), and units put into each other ("3.5 kg in pounds"): small models cannot count. Pure.

The names of units are those of the language file. Covered: weight, length, area, volume, speed and temperature. Not covered: money,
and amounts of what is cooked with cups.
"""

import re
from collections.abc import Mapping
from fractions import Fraction

from appliance.language.languages import Language

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


AMOUNT = r"-?\d{1,12}(?:[.,]\d{1,9})?(?:\s+\d{1,3}/\d{1,3})?|\d{1,3}/\d{1,3}"
# What one of them is in the first unit of its kind, as fractions: these are exact by definition.
KINDS: Mapping[str, tuple[str, str]] = {
    "kg": ("weight", "1"),
    "g": ("weight", "0.001"),
    "mg": ("weight", "0.000001"),
    "t": ("weight", "1000"),
    "lb": ("weight", "0.45359237"),
    "oz": ("weight", "0.028349523125"),
    "st": ("weight", "6.35029318"),
    "m": ("length", "1"),
    "km": ("length", "1000"),
    "cm": ("length", "0.01"),
    "mm": ("length", "0.001"),
    "mi": ("length", "1609.344"),
    "yd": ("length", "0.9144"),
    "ft": ("length", "0.3048"),
    "in": ("length", "0.0254"),
    "l": ("volume", "1"),
    "ml": ("volume", "0.001"),
    "cl": ("volume", "0.01"),
    "dl": ("volume", "0.1"),
    "gal": ("volume", "3.785411784"),
    "pt": ("volume", "0.56826125"),
    "km/h": ("speed", "1"),
    "mph": ("speed", "1.609344"),
    "°C": ("temperature", "1"),
    "°F": ("temperature", "1"),
}


def converted(text: str, language: Language) -> tuple[str, str]:
    """An amount, and what it is in another unit, as "3.5 kg in pounds" asks for; ("", "") for any other text."""
    names = language.units
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    between, many, are = (language.phrases.get(f"units_{name}", "(?!)") for name in ("into", "many", "are"))
    said = " ".join(without_separators(text, language.signs).lower().strip(" ?.!=¿¡").split())
    unit, amount = rf"(?P<unit>{known})", f"(?P<number>{'|'.join([AMOUNT, *map(re.escape, language.lexicon.ones)])})"
    of = language.phrases.get("units_of", "(?!)")
    found = re.fullmatch(rf"{amount}\s*(?:{of} )?{unit} (?:{between}) (?P<other>{known})", said)
    if found is None:
        found = re.fullmatch(rf"(?:{many}) ?(?P<other>{known}) (?:{are}) {amount}\s*{unit}", said)
    if found is None:
        return "", ""
    unit, other = names[found["unit"]], names[found["other"]]
    if KINDS[unit][0] != KINDS[other][0] or unit == other:
        return "", ""
    number = _number(found["number"])
    result = _temperature(number, unit) if unit.startswith("°") else number * Fraction(KINDS[unit][1]) / Fraction(KINDS[other][1])
    return f"{_written(number)} {unit}", f"{_written(result)} {other}"


def _number(text: str) -> Fraction:
    if text[0].isalpha():
        return Fraction(1)
    return sum((Fraction(part.replace(",", ".")) for part in text.split()), Fraction(0))


def _temperature(number: Fraction, unit: str) -> Fraction:
    return number * 9 / 5 + 32 if unit == "°C" else (number - 32) * 5 / 9


def _written(number: Fraction) -> str:
    """To four digits that say something; whole numbers, and large ones, as whole ones."""
    return str(round(number)) if number.denominator == 1 or abs(number) >= 1000 else f"{float(number):.4g}"
