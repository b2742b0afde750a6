"""Sums in words or signs ("7 plus 5"), and units put into each other ("3.5 kg in pounds"): small models cannot count. Pure.

The names of units are those of the language file. Covered: weight, length, area, volume, speed and temperature, and
which currencies an amount of money names. Not covered: amounts of what is cooked with cups.
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


SIGNED = re.compile(r"([€$£¥])\s*(\d[\d.,]*)")  # "€50" is "50 €"
EURO = "EUR"
AMOUNT = r"-?\d{1,12}(?:[.,]\d{1,9})?(?:\s+\d{1,3}/\d{1,3})?|\d{1,3}/\d{1,3}"
# What one of them is in the first unit of its line, as fractions: these are exact by definition.
SIZES: tuple[Mapping[str, str], ...] = tuple(
    dict(zip(*[iter(line.split())] * 2))
    for line in (
        "kg 1 g 0.001 mg 0.000001 t 1000 lb 0.45359237 oz 0.028349523125 st 6.35029318",
        "m 1 km 1000 cm 0.01 mm 0.001 mi 1609.344 yd 0.9144 ft 0.3048 in 0.0254",
        "l 1 ml 0.001 cl 0.01 dl 0.1 gal 3.785411784 pt 0.56826125",
        "km/h 1 mph 1.609344",
        "°C 1 °F 1",
    )
)


def converted(text: str, language: Language) -> tuple[str, str]:
    """An amount, and what it is in another unit, as "3.5 kg in pounds" asks for; ("", "") for any other text."""
    asked = _asked(text, language, language.units)
    if asked is None:
        return "", ""
    number, unit, other = asked
    sizes: Mapping[str, str] = next((one for one in SIZES if unit in one), {})
    if other not in sizes or unit == other:
        return "", ""
    result = _temperature(number, unit) if unit.startswith("°") else number * Fraction(sizes[unit]) / Fraction(sizes[other])
    return f"{_written(number)} {unit}", f"{_written(result)} {other}"


def money(text: str, language: Language) -> tuple[Fraction, str, str] | None:
    """An amount, its currency and the one that is wanted, as "50 euros in dollars" asks for; None for any other text.

    Words of other things, "pounds", are money beside a currency.
    """
    if not _is_money(text, language):
        return None
    asked = _asked(SIGNED.sub(r"\2 \1", text), language, {**language.units, **language.currencies})
    codes = set(language.currencies.values())
    return asked if asked is not None and asked[1] != asked[2] and {*asked[1:]} <= codes else None


def rate(text: str, language: Language) -> tuple[Fraction, str, str] | None:
    """A currency alone, as what a euro is in it; None for any other text."""
    code = language.currencies.get(" ".join(text.lower().strip(" ?.!").split()))
    return None if code in (None, EURO) else (Fraction(1), EURO, str(code))


def _is_money(text: str, language: Language) -> bool:
    """Whether a currency is named that can be nothing else: "pounds in kilos" is none. Quick, for every message is asked."""
    said = text.lower()
    return any(name in said for name in language.currencies if name not in language.units)


def _asked(text: str, language: Language, names: Mapping[str, str]) -> tuple[Fraction, str, str] | None:
    """The amount of a text, its unit and the one that is wanted."""
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    between, many, are = (language.phrases.get(f"units_{name}", "(?!)") for name in ("into", "many", "are"))
    said = " ".join(without_separators(text, language.signs).lower().strip(" ?.!=¿¡").split())
    unit, amount = rf"(?P<unit>{known})", f"(?P<number>{'|'.join([AMOUNT, *map(re.escape, language.lexicon.ones)])})"
    of = language.phrases.get("units_of", "(?!)")
    found = re.fullmatch(rf"{amount}\s*(?:{of} )?{unit} (?:{between}) (?P<other>{known})", said)
    if found is None:
        found = re.fullmatch(rf"(?:{many}) ?(?P<other>{known}) (?:{are}) {amount}\s*{unit}", said)
    return None if found is None else (_number(found["number"]), names[found["unit"]], names[found["other"]])


def _number(text: str) -> Fraction:
    if text[0].isalpha():
        return Fraction(1)
    return sum((Fraction(part.replace(",", ".")) for part in text.split()), Fraction(0))


def _temperature(number: Fraction, unit: str) -> Fraction:
    return number * 9 / 5 + 32 if unit == "°C" else (number - 32) * 5 / 9


def _written(number: Fraction) -> str:
    """To four digits that say something; whole numbers, and large ones, as whole ones."""
    return str(round(number)) if number.denominator == 1 or abs(number) >= 1000 else f"{float(number):.4g}"
