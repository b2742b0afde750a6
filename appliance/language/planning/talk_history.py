"""Which turns before a message a small model is shown, so that it goes on from them."""

from collections.abc import Sequence

from appliance.language.planning.plans import SOURCE, Scene, own_words
from appliance.language.router import COURTESIES, ORDER, Router
from appliance.records import Message

LOOKED_AT = 8  # messages: a tiny model is shown fewer, and each of the person's is compared with all sentences


def for_model(scene: Scene, spoken: Sequence[Message], router: Router) -> Sequence[Message]:
    """What was spoken, and for a tiny model only what it can go on from: its own talk, in the language that it knows.

    After a page of the program's own words, or words in another language, it says nothing that makes sense.
    """
    if scene.tier != "tiny":
        return spoken
    found: list[Message] = []
    is_kept = False
    for message in spoken[-LOOKED_AT:]:
        if message.role == "user":
            text = own_words(message).strip()
            intent = router.cue(text, (*COURTESIES, *ORDER))
            is_kept = "no_talk" not in router.languages.detect(text)[0].phrases and (intent is None or intent.name == "hello")
        elif is_kept and SOURCE.search(message.content):  # notes were quoted
            is_kept, found = False, found[:-1]
        if is_kept:
            found.append(message)
    return found
