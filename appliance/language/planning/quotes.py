"""Sentences of notes as a person reads them: quoted with their source, several as a list. Pure."""

from appliance.language.evidence import Evidence
from appliance.language.languages import Language
from appliance.language.planning.plans import closed, shown_source

MOST_NEAREST, ALSO_NEAR = 3, 0.6  # sentences that are shown as the nearest, and of the best score, for another one
FEW_SHOWN = 45  # words of all of them


def quote(phrase: str, found: Evidence, language: Language) -> str:
    """A phrase with the best sentences; several are a list below it."""
    best = [one for one in found.best if one.ref]
    shown = best[:1]
    for one in best[1:MOST_NEAREST]:
        if any(one.ref == other.ref and one.whole == other.whole for other in shown):
            continue
        words = sum(len(other.quoted.split()) for other in (*shown, one))
        if one.score >= ALSO_NEAR * best[0].score and words <= FEW_SHOWN:
            shown.append(one)
    quoted = [f"{closed(one.quoted)} [{shown_source(one.ref)}]" for one in shown]
    listed = "".join(f"\n- {one}" for one in quoted)
    return language.say(phrase, text=quoted[0] if len(quoted) == 1 else listed).replace(" \n", "\n")
