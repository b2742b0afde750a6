"""Units that are put into each other, such as "3.5 kg in pounds": the names are those of the language file. Pure.

Covered: weight, length, area, volume, speed and temperature. Not covered: money, and amounts of what is cooked with cups.
"""

import re
from collections.abc import Mapping
from fractions import Fraction

from appliance.language import arithmetic
from appliance.language.languages import Language

NUMBER = r"-?\d{1,12}(?:[.,]\d{1,9})?(?:\s+\d{1,3}/\d{1,3})?|\d{1,3}/\d{1,3}"
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
    said = " ".join(arithmetic.without_separators(text, language.signs).lower().strip(" ?.!=¿¡").split())
    unit, amount = rf"(?P<unit>{known})", f"(?P<number>{'|'.join([NUMBER, *map(re.escape, language.lexicon.ones)])})"
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
