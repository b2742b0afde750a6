"""What kind of thing a question asks for, and which sentences hold one."""

import pytest

from appliance.language.answer_kinds import kind_of, says_what_is_asked

VACCINATED = "The dog Pixel got the rabies vaccination on 12 May 2026; next one in May 2029."
CAR = "The car is a blue Skoda Fabia from 2019, licence plate KL 48 213."


@pytest.mark.parametrize(
    ("question", "name", "answer", "other"),
    [
        ("How old is the dog Pixel?", "age", "Pixel is 3.", VACCINATED),
        ("How old is the car?", "age", CAR, VACCINATED),
        ("Wie alt ist Lea?", "age", "Lea ist 34 Jahre alt.", "Lea hat am 7. September frei."),
        ("What is the phone number of the vet?", "telephone number", "Phone 555-0177.", "Mill Lane 3, open until 18:00."),
        ("What colour is our car?", "colour", CAR, "The car is a Skoda."),
        ("How much did the bike cost?", "amount of money", "It was 240 euros.", "Frame number WTU 4410 K."),
        ("How much does the cat weigh?", "weight", "Miso has 4.2 kg.", "Miso is 4 years old."),
        ("How tall is Jonas?", "height", "1.42 m in March.", "Jonas: 19 June"),
        ("How long is the notice period?", "duration or distance", "Three months.", "On 1 December with three customers."),
        ("When is paper collected?", "time", "Paper: second Friday.", "The policy number is HG-2290-81."),
        ("And when does the course begin?", "time", "At 18:15.", "Bring the blue book."),
        ("How many hens do we have?", "number", "Five hens.", "They came on 9 November 2026."),
        ("What is our policy number?", "number", "Policy number HG-2290-81.", "Ask Mrs. Keller."),
        ("Where is the fuse box?", "place", "Fuse box: hall.", "Fuse box: 19 June."),
        ("Where was Jonas born?", "place", "Jonas was born in Graz.", "Jonas: 19 June"),
        ("Who fixes our heating?", "person", "Henrik Olsen, every October.", "2026-10-01: 17,905 kWh."),
        ("Whose birthday is in March?", "owner", "Mum's birthday: 14 March 1958", "It's on 14 March."),
        ("Who keeps the garage code?", "person", "Ada keeps the garage code: 4471.", "Garage code: 4471."),
        ("What did Bill say about the chain?", "statement", "Bill says it creaks.", "customer: Bill; job: chain; price: 64.90"),
        ("Was hat Karl zum Dach gesagt?", "statement", "Karl meint, es hält.", "Karl: Dach, Montag"),
        ("How often do I take the iron?", "frequency", "Take it every second day.", "Your iron is still low (ferritin 11)."),
        ("Wie oft kommt die Müllabfuhr?", "frequency", "Sie kommt alle zwei Wochen.", "Müllabfuhr: 3 Tonnen."),
        ("À quelle fréquence arroser le cactus ?", "frequency", "Une fois par mois.", "Le cactus a 12 ans."),
        ("¿Con qué frecuencia riego el cactus?", "frequency", "Una vez al mes.", "El cactus tiene 12 años."),
        ("Who has the key?", "person", "The neighbour has it.", "The key is on the hook."),
    ],
)
def test_a_sentence_answers_that_holds_what_is_asked_for(question: str, name: str, answer: str, other: str) -> None:
    kind = kind_of(question)
    assert kind is not None and kind.name == name
    assert kind.holds(answer) and not kind.holds(other)


@pytest.mark.parametrize(
    "question", ["What did we decide?", "What do I do when the printer blinks?", "hello", "Which school is it?"]
)
def test_a_question_of_no_known_kind_takes_any_sentence(question: str) -> None:
    assert kind_of(question) is None


def test_an_answer_must_say_it_in_words_of_its_own() -> None:
    assert not says_what_is_asked("Who takes care of our animals?", "The vet takes care of our animals.")
    assert says_what_is_asked("Who takes care of our animals?", "Dr. Sato takes care of our animals.")
    assert says_what_is_asked("What did we decide?", "Nothing.")
    assert says_what_is_asked("How old is the parrot?", "African grey, hatched 2011.")
    assert says_what_is_asked("Whose umbrella is the blue one?", "The blue umbrella belongs to the office.")
    assert not says_what_is_asked("Whose umbrella is the blue one?", "The blue umbrella stands in the hall.")
