"""Misspelled words about time: "tomorow", "wensday", "evry".

Says what a text would be with its near misses mended, and nothing about when that is: whoever asks takes it only where the
mended text is a time, and then asks the person, since it is a guess. Pure.
"""

import re

from appliance.language.edit_distance import distance

WORDS = (
    *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
    *("mondays", "tuesdays", "wednesdays", "thursdays", "fridays", "saturdays", "sundays"),
    *("january", "february", "april", "august", "september", "october", "november", "december"),
    *("second", "seconds", "minute", "minutes", "hour", "hours", "days", "week", "weeks", "month", "months", "year", "years"),
    *("fortnight", "fortnights", "today", "tonight", "tomorrow", "noon", "midday", "midnight", "morning", "afternoon", "evening"),
    *("night", "mornings", "afternoons", "evenings", "weekday", "weekdays", "weekend", "weekends", "quarter"),
    *("every", "each", "daily", "hourly", "weekly", "monthly", "yearly", "nightly", "next", "after", "before", "between", "until"),
    *("first", "third", "fourth", "fifth", "last", "other", "twice", "once", "times", "half", "past", "starting", "business"),
    *("unless", "except", "excluding", "when", "whenever", "o'clock", "in", "at", "on", "and", "of", "the", "from", "this"),
)
KNOWN = frozenset((*WORDS, "march", "june", "july"))  # near these three lie names: Marc, Jane, Jule
SHORT = {"nxt": "next", "evr": "every", "tmrw": "tomorrow", "tmr": "tomorrow", "tonite": "tonight", "minits": "minutes"}
# Words and names of their own, one letter away from a word about time.
OTHERS = frozenset(
    "also even ever very very's moon soon none nine noun money sunny mouth south days day your tour four hear hears dear near fear "
    "beat meet weed weak seek text nest best rest test fast past vast cast list lost just least east might light right sight "
    "eight fight mourning learning warning meaning leach beach teach reach peach jane jules judy marsh match wheels meals weekly "
    "frida fried monde mother brother bother there three throw forth fort birth third thirsty thirty otter utter water later "
    "alter offer half calf hall halt path pest part mend send than then them when what where whole thin thing that other".split()
)
WORD = re.compile(r"[A-Za-z][A-Za-z']{2,12}")
MIN_CHARS = 4
LONG_CHARS = 7  # from here on two letters may be wrong


def mended(said: str) -> str:
    """The text with the nearest word about time for each near miss; the same text when there is none."""
    return WORD.sub(lambda found: _correct_word(found[0]), said)


def _correct_word(word: str) -> str:
    plain = word.lower()
    if plain in KNOWN or plain in OTHERS:
        return word
    if plain in SHORT:
        return SHORT[plain]
    if len(plain) < MIN_CHARS:
        return word
    most = 2 if len(plain) >= LONG_CHARS else 1
    targets = [name for name in WORDS if len(name) >= MIN_CHARS]
    near = [(found, name[-1] != plain[-1], name) for name in targets if (found := _edit_distance(plain, name, most)) <= most]
    return min(near)[2] if near else word


def _edit_distance(one: str, other: str, most: int) -> int:
    """How many letters were left out, put in, mistaken or swapped; more than `most` where that is all that is known."""
    if abs(len(one) - len(other)) > most or one[0] != other[0] and one[1:2] != other[:1]:
        return most + 1
    return distance(one, other, most)
