"""A message put politely before a tiny model, by the program where it can and by the model where its answer keeps what was said.

Asked for a friendlier wording of ten everyday messages the bundled model kept two: it answered them, or said the opposite ("I'm
going to park in front of your garage"). So orders and refusals get the words that make them polite; the model's wording of any
other text is taken when `support.is_same_message` finds all of it again, else it is said that this model cannot do it.
"""

from appliance.language import sentences
from appliance.language.languages import Language, words_in
from appliance.language.planning.plans import Chat, Grounded, Plan, Say, closed
from appliance.language.router import Intent
from appliance.language.todo_lines import is_deed

SHORT = 240  # characters of a text that the program puts politely


def polite(intent: Intent, chat: Chat) -> Plan:
    """What is done about a text that is to be polite; `chat` asks the model for it."""
    text, language = intent.parts["text"].strip(), intent.language
    if "no_talk" in language.phrases:
        return Say(language.say("no_rewrite"))  # a language that the model has not learned
    if said := politely(text, language):
        return Say(said)
    asked = Chat(
        chat.system, chat.messages, chat.max_tokens, chat.temperature, chat.repeat_penalty, is_silent=True, forbidden=chat.forbidden
    )
    return Grounded(asked, "", (text,), "", language.say("no_rewrite"), is_rewording=True)


def politely(text: str, language: Language) -> str:
    """A text of orders and refusals in polite words; "" where a sentence of it is neither."""
    bare = text.strip(" \"'“”")
    parts = sentences.split(bare)
    if not parts or len(bare) > SHORT or "politely" not in language.phrases:
        return ""
    made = [_sentence(one.strip(" .!"), language, is_alone=len(parts) == 1) for one in parts]
    return " ".join(made) if all(made) else ""


def _sentence(said: str, language: Language, *, is_alone: bool) -> str:
    if (found := language.expression("refusing").match(said)) is not None:
        rest = found["rest"]
        return closed(language.say("refusing", text=rest if rest[:2] in ("I ", "I'", "I’") else rest[:1].lower() + rest[1:]))
    if language.expression("forbidding").match(said) is not None and "," not in said:
        return language.say("politely_not", text=language.expression("forbidding").sub("", said))
    first = words_in(said)[:1]
    is_plain = bool(first) and first[0] not in language.words["common"] - language.words["tell"]
    is_usual = language.expression("plain_order").match(said) is not None
    is_order = is_deed(said) or is_usual or (is_alone and is_plain and "," not in said)
    if not first or said.endswith("?") or not is_order or not (is_plain or is_usual):
        return ""
    return language.say("politely", text=f"{said[:1].lower()}{said[1:]}")
