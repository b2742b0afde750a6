"""The sentences of a text that say what somebody has to do, for models that are too small to be trusted with it.

A sentence counts that is an open box of a list, is marked as to be done, says that something must, should or needs to be done,
asks for it, or begins with what one is to do. What is done, and what is only wished or asked, does not count. English, German,
French and Spanish. Pure. Not promised: all of them; a task that is only to be understood from what was said before is not found.
"""

import re

from appliance.language import sentences

MOST = 20
OPEN_BOX = re.compile(r"^\s*(?:[-*+]\s*)?\[ \]\s*")
CLOSED_BOX = re.compile(r"^\s*(?:[-*+]\s*)?\[[xX]\]")
MARK = re.compile(
    r"^\W*(?:to[- ]?do|action(?: item)?s?|open|next|aufgaben?|offen|zu erledigen|à faire|pendientes?"
    r"|por hacer)\s*:\s*",
    re.IGNORECASE,
)
MUST = re.compile(
    r"\b(?:must|has to|have to|needs? to|should|ought to|is to|are to|remember to|don['’]t forget to|please|could you"
    r"|can you|would you|agreed to|promised to"
    r"|will (?!be\b|have\b|not\b)\w+|muss|müssen|musst|soll|sollen|sollte|bitte|kannst du|könntest du|vergiss nicht"
    r"|wird \w+en\b|übernimmt|kümmert sich"
    r"|doit|doivent|devez|il faut|merci de|veuillez|peux-tu|pourrais-tu|n['’]oublie pas|debe|deben|hay que|tiene que"
    r"|tienes que|por favor|puedes|no olvides)\b",
    re.IGNORECASE,
)
BEFORE = re.compile(
    r"\b(?:until|by|before|bis|avant|antes de(?:l)?|hasta) (?:the )?(?:next |nächsten |am )?(?:mon|tues|wednes|thurs|fri"
    r"|satur|sun|montag|dienstag|mittwoch|donnerstag"
    r"|freitag|samstag|sonntag|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|lunes|martes|miércoles|jueves|viernes"
    r"|sábado|domingo|tomorrow|tonight|noon"
    r"|end of|morgen|ende|demain|mañana|\d)",
    re.IGNORECASE,
)
DEED = re.compile(
    r"^(?:then |and |also |next,? )?(?:add|answer|arrange|ask|bring|book|build|buy|call|cancel|check|clean|collect"
    r"|confirm|contact|decide|draft|e-?mail|fetch|file|fill"
    r"|find|finish|fix|follow|get|give|hand|inform|install|invite|make|mow|move|notify|order|organi[sz]e|pack|paint|pay"
    r"|phone|pick|plan|plant|post|prepare|print|read"
    r"|remind|remove|renew|repair|replace|reply|reserve|return|review|schedule|sell|send|set|ship|sign|submit|take|talk"
    r"|tell|test|update|upload|visit|wash|water|write)"
    r"\s+(?!(?:is|are|was|were)\b)\w",
    re.IGNORECASE,
)
DONE = re.compile(r"\b(?:done|finished|completed|already|erledigt|schon|déjà|fait|hecho|ya)\b", re.IGNORECASE)
DUTY = re.compile(r"^\W*(?:if|when|whenever|wenn|falls|si|cuando)\b|\b(?:should be between|should be at)\b", re.IGNORECASE)


def find_todos(text: str) -> list[str]:
    """What is to be done, in the words and the order of the text, each once."""
    found: list[str] = []
    for line in text.splitlines():
        if CLOSED_BOX.match(line):
            continue
        if OPEN_BOX.match(line):
            found.append(OPEN_BOX.sub("", line).strip())
            continue
        marked = MARK.match(line)
        for one in sentences.split(line[marked.end() :] if marked else line):
            if marked or _is_todo(one):
                found.append(one)
    return [one for one in dict.fromkeys(found) if one][:MOST]


def _is_todo(sentence: str) -> bool:
    if sentence.endswith("?") and not re.match(r"^\W*(?:can|could|would) you\b", sentence, re.IGNORECASE):
        return False
    if DONE.search(sentence) or DUTY.search(sentence):
        return False
    return bool(MUST.search(sentence) or BEFORE.search(sentence) or DEED.match(sentence))
