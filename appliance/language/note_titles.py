"""How a person names a note that something is added to: "the garden note", "my note about the car", "Einkaufsliste". Pure."""

from appliance.language.languages import Language, words_in

COMPOUND = 4  # letters of a word that a compound begins with: "Garten" in "Gartennotiz"
EDGE = " .,:!?\"'“”„«»"


def names_list(title: str, language: Language) -> bool:
    """Whether a person called it a list."""
    return any(word.endswith(one) for word in words_in(title) for one in language.words["lists"])


def says_note(title: str, language: Language) -> bool:
    """Whether a person called it a note or a list."""
    return any(word.endswith(one) for word in words_in(title) for one in (*language.words["lists"], *language.words["notes"]))


def bare_title(title: str, language: Language) -> str:
    """What a note is called, without "note about the" and "list"."""
    kept: list[str] = []
    generic = language.words["notes"] | language.words["lists"] | language.words["about"] | language.words["definite"]
    for word in title.strip(EDGE).split():
        plain = word.lower().strip(EDGE)
        if not kept and plain in generic:
            continue
        kept.append(word)
    while len(kept) > 1 and kept[-1].lower().strip(EDGE) in generic:
        kept.pop()
    text = " ".join(kept) or title
    return language.expression("elision").sub("", text).strip(EDGE)


def without_compound(title: str, language: Language) -> str:
    """A title without "list" or "note" at the end of its last word: "Garten" of "Gartennotiz"."""
    for end in language.words["lists"] | language.words["notes"]:
        if title.lower().endswith(end) and len(title) >= len(end) + COMPOUND and title[-len(end) - 1].isalpha():
            return title[: -len(end)].rstrip("s-")
    return title


def without_link(text: str, language: Language) -> str:
    """What is to be added without the "that" before it."""
    first, _, rest = text.strip().partition(" ")
    return rest if rest and first.lower() in language.words["that"] else text


def is_meant(title: str, language: Language) -> bool:
    """Whether these words name one note or list, rather than the list of tasks or none at all."""
    if ":" in title:
        return False
    words = set(words_in(title)) - language.words["notes"] - language.words["lists"] - language.words["definite"]
    if not words - language.words["about"] - language.words["common"]:
        return False  # "the list"
    is_of_tasks = words & language.words["tasks"] or any(name in title.lower() for name in language.words["tasks"] if "-" in name)
    return says_note(title, language) and not is_of_tasks
