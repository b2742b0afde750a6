"""Where sentences end, what of a streamed answer is shown, and whether an answer is supported."""

import pytest
from msgspec.structs import replace

from appliance.language import sentences
from appliance.language.evidence import Sentence
from appliance.language.sentence_stream import SentenceStream
from appliance.language.support import is_fair_summary, is_supported, keeps_fact, keeps_relations


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("His teacher is Mrs. Adeyemi. Training is on Tuesdays.", ["His teacher is Mrs. Adeyemi.", "Training is on Tuesdays."]),
        ("Dr. Miriam Castel, Linden St. 9. Open until 18.30!", ["Dr. Miriam Castel, Linden St. 9.", "Open until 18.30!"]),
        ("Am 10. Dezember kommt J. Brandl. Er bleibt.", ["Am 10. Dezember kommt J. Brandl.", "Er bleibt."]),
        ("Vom 3. bis 5. Mai ist zu. Bis dann.", ["Vom 3. bis 5. Mai ist zu.", "Bis dann."]),
        ("Am 3.12. Treffen bei Lena. Am 5.12. um zehn Uhr Kino.", ["Am 3.12. Treffen bei Lena.", "Am 5.12. um zehn Uhr Kino."]),
        ("# Birthdays\n\n- Mum: 3 February\n- Lea: 7 September\n", ["Birthdays", "Mum: 3 February", "Lea: 7 September"]),
        ("1. Eggs\n2. Milk", ["Eggs", "Milk"]),
        ("It costs 2.5 euros, e.g. here. Yes?", ["It costs 2.5 euros, e.g. here.", "Yes?"]),
        ("", []),
    ],
)
def test_a_text_is_cut_where_its_sentences_end(text: str, parts: list[str]) -> None:
    assert sentences.split(text) == parts


def shown(*pieces: str, is_cut: bool = False, forbidden: str = "", echo: str = "") -> str:
    stream = SentenceStream(forbidden, echo)
    text = "".join(stream.feed(piece) for piece in pieces)
    text += stream.finish(is_cut=is_cut)
    assert text == stream.said
    return text


def pieces(text: str) -> list[str]:
    return [f"{word} " for word in text.split(" ")]


def test_a_sentence_that_comes_again_ends_the_answer() -> None:
    assert shown(*pieces("I am here to help. Ask me anything. I am here to help. I am here to help.")).strip() == (
        "I am here to help. Ask me anything."
    )


def test_a_loop_within_the_first_sentence_is_not_shown_on() -> None:
    text = shown(*pieces("I'm here for anything and " * 30), is_cut=True)
    assert text.count("here for anything") <= 2 and len(text) < 80


def test_a_cut_answer_ends_with_its_last_whole_sentence() -> None:
    assert shown(*pieces("Water boils. At sea level that is the"), is_cut=True).strip() == "Water boils."
    assert shown(*pieces("Water boils at a"), is_cut=True) == "Water boils at a …"


def test_the_first_words_are_shown_at_once() -> None:
    stream = SentenceStream()
    assert [stream.feed(piece) for piece in ("Hel", "lo", " there", ", you")] == ["Hel", "lo", "", " there,"]
    held = SentenceStream("You are Owlbox.")
    assert [held.feed(piece) for piece in ("You", " can", " go")] == ["", "", ""] and held.feed(" to") == "You can go"
    assert SentenceStream().feed("<") == "" and SentenceStream().feed(" {") == ""


def test_what_the_person_said_is_no_answer() -> None:
    said = "I had a long day today. Good night to you"
    assert shown(*pieces("I had a long day today."), echo=said) == ""
    assert shown(*pieces("I had a long day today. Rest well."), echo=said).strip() == "Rest well."
    assert shown(*pieces("I had a long day, too."), echo=said).strip() == "I had a long day, too."
    assert shown("Good night.", echo="Good night") == "Good night."  # so short an answer is one


def test_raw_calls_and_the_models_instructions_are_never_shown() -> None:
    assert shown('{"name": "search", "arguments": {}}') == ""
    assert shown("<tool_call>{}</tool_call>") == ""
    told = "You are Owlbox, a helpful assistant on a small computer at home."
    assert shown(*pieces(f"{told} Hello!"), forbidden=told).strip() == "Hello!"
    assert shown(*pieces("Owlbox is a helpful assistant on a small computer at home."), forbidden=told) == ""
    steps = "First get the whole text, then choose the length, then write one sentence."
    assert shown(*pieces("Get the whole text, then choose the length and write. Done."), forbidden=steps).strip() == "Done."


@pytest.mark.parametrize(
    ("source", "question", "wrong", "right"),
    [
        ("Tom owes Ada 40 euros.", "Who owes money?", "Ada owes Tom 40 euros.", "Tom owes Ada 40 euros."),
        ("Gudrun was ill, Noah came.", "Who came?", "Noah did not come.", "Noah came."),
        ("The sofa costs 900, the deposit is 200.", "What does the sofa cost?", "The sofa costs 200.", "The sofa costs 900."),
        ("Rent: 640 euros, heating: 90.", "How much is the heating?", "The heating is 640 euros.", "The rent is 640 euros."),
        ("Boil 2 litres, then add 30 grams of salt.", "How much salt?", "Add 2 grams of salt.", "Add 30 grams of salt."),
        ("Do not feed the cat before 8.", "When do we feed the cat?", "Feed the cat before 8.", "Do not feed the cat before 8."),
        ("Lea is taller than Mia.", "Who is taller?", "Mia is taller than Lea.", "Lea is taller than Mia."),
        ("Karl called Petra about the pump.", "Who called?", "Petra called Karl.", "Karl called Petra."),
        ("No nuts for Ida, she is allergic.", "What about nuts?", "Ida is allergic, nuts.", "No nuts for Ida."),
        ("Kein Fleisch für Jo.", "Was isst Jo?", "Fleisch für Jo.", "Kein Fleisch für Jo."),
    ],
)
def test_a_rewording_keeps_who_did_what_negation_and_amounts(source: str, question: str, wrong: str, right: str) -> None:
    ignored = frozenset("the is are was of for on a an do did does not no then than about what who how much".split())
    assert not keeps_relations(wrong, [source], question, ignored) and keeps_relations(right, [source], question, ignored)


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("The garage code is 4471.", True),
        ("The code of your garage is 4471.", True),
        ("The garage code is 4472.", False),
        ("The garage code is known to Mrs. Weber.", False),
        ("The garage code.", False),
        ("I do not know the garage code 4471.", False),
    ],
)
def test_an_answer_is_supported_by_what_it_was_made_from(answer: str, is_right: bool) -> None:
    ignored = frozenset("the is of your what to i do not".split())
    assert is_supported(answer, ["The garage code is 4471."], "What is the garage code?", ignored) is is_right


GRANDMA = """# Grandma Ilse
Born 2 May 1938. Lives at Rosenweg 4, 76744 Wörth.
Her neighbour Mrs Kranz has a key.
She wanted a new radio. We gave her the Roberts one.
"""


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("Grandma Ilse was born on 2 May 1938. She lives at Rosenweg 4.", True),
        ("Grandma Ilse lives at Rosenweg 4 and wanted a new radio.", True),
        ("Mrs Kranz, her neighbour, has a key.", True),
        ("Grandma Ilse lives at Rosenweg 4. She has a key and wants a new radio.", False),  # it is Mrs Kranz who has it
        ("Grandma Ilse was born on 3 May 1938.", False),
        ("Grandma Ilse lives with Mrs Weber.", False),
        ("Grandma Ilse gave her neighbour a radio at Rosenweg 4.", False),
        ("", False),
    ],
)
def test_a_summary_says_of_nobody_what_is_said_of_another(answer: str, is_right: bool) -> None:
    ignored = frozenset("the is at of a and was on in with has she her it we an i".split())
    assert is_fair_summary(answer, GRANDMA, ignored) is is_right


@pytest.mark.parametrize(
    ("answer", "is_kept"),
    [("It is Sea Lettuce below.", True), ("The room was painted white.", False), ("Sea Lettuce and white.", True)],
)
def test_an_answer_keeps_a_name_that_its_sentence_adds(answer: str, is_kept: bool) -> None:
    assert keeps_fact(answer, '"Sea Lettuce" below, white above', "What colour is the room?", {"it", "is", "the"}) is is_kept
    assert keeps_fact(answer, "below, white above", "What colour is the room?", ())


@pytest.mark.parametrize(
    ("quote", "question", "answer", "is_kept"),
    [
        ("Flight TP 571: 9 April 2027, 11:40", "When does the flight leave?", "The flight TP 571 leaves on April 9, 2027.", False),
        ("Flight TP 571: 9 April 2027, 11:40", "When does the flight leave?", "TP 571 leaves on April 9, 2027 at 11:40.", True),
        ("Fence: go with Zaun-Schmitt, 1,140 euro.", "What did we decide about the fence?", "We decided on Zaun-Schmitt.", False),
        ("Bus 73 leaves at 7:12 and 7:42.", "When does bus 73 leave?", "The bus leaves at 7:12.", False),
        ("Bus 73 leaves at 7:12 and 7:42.", "When does bus 73 leave?", "It leaves at 7:12 and 7:42.", True),
        ("Soak 200 g beans for 12 hours.", "How long are the beans soaked?", "They are soaked for 12 hours.", False),
        ("Mia wears size 34.", "Which size does Mia wear?", "Size 34.", True),
    ],
)
def test_an_answer_keeps_every_number_that_its_sentence_adds(quote: str, question: str, answer: str, is_kept: bool) -> None:
    assert keeps_fact(answer, quote, question, {"it", "is", "the", "for", "at", "on", "and"}) is is_kept


def test_a_sentence_that_needs_its_line_is_held_to_the_numbers_of_that() -> None:
    line = "The fence is broken. Two quotes: Meyer 1,840 €, Olsen 1,610 €. We decided on Olsen."
    one = Sentence("We decided on Olsen.", "box://notes/meeting.md", "Meeting", whole=line, needs_line=True)
    assert one.spoken == line and replace(one, needs_line=False).spoken == one.text
    assert not keeps_fact("We decided on Olsen.", one.spoken, "What did we decide about the fence?", {"we", "on"})
