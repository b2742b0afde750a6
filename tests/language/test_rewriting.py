"""Messages put politely before a tiny model: by the program, by the model where it keeps what was said, or not at all."""

import pytest

from appliance.language import support
from appliance.language.languages import Languages
from appliance.language.planning import rewriting
from appliance.language.planning.plans import Grounded, ModelTalk, Say
from appliance.language.router import Intent, Router

LANGUAGES = Languages()
IGNORED = LANGUAGES.function_words()
CHAT = ModelTalk("", (), 100, 0.0, 1.1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Send me the report now.", "Could you please send me the report now?"),
        ("Don't park in front of my garage.", "Could you please not park in front of my garage?"),
        (
            "I can't swap shifts with you again, you still owe me two.",
            "I'm sorry, but I can't swap shifts with you again, you still owe me two.",
        ),
        ("No, I don't want to buy your insurance.", "I'm sorry, but I don't want to buy your insurance."),
        ("Stop calling me before 9. Send a mail.", "Could you please stop calling me before 9? Could you please send a mail?"),
        ("The parcel was damaged. I want my money back.", ""),
        ("Your music is too loud, turn it down.", ""),
        ("We won't come.", "I'm sorry, but we won't come."),
    ],
)
def test_orders_and_refusals_are_put_politely_by_the_program(text: str, said: str) -> None:
    assert rewriting.politely(text, LANGUAGES.english) == said


@pytest.mark.parametrize(
    ("text", "answer", "is_same"),
    [
        # What the bundled model made of them, and what a larger one does.
        (
            "I can't swap shifts with you again, you still owe me two.",
            "I'm sorry, but I can't swap shifts with you again. You still owe me two.",
            True,
        ),
        ("Your music is too loud, turn it down.", "Your music is a bit too loud. Could you please turn it down?", True),
        ("Your music is too loud, turn it down.", "I'm sorry, but I'm not available to play your music right now.", False),
        ("Don't park in front of my garage.", "No, no it's not. I'm going to park in front of your garage.", False),
        ("Don't park in front of my garage.", "Could you please park in front of my garage?", False),
        ("Send me 240 euros by Friday.", "Please send me 204 euros by Friday.", False),
        ("Send me 240 euros by Friday.", "Could you please send me 240 euros by Friday?", True),
        (
            "The parcel was damaged. I want my money back.",
            "I'm sorry for your loss, but I'm unable to assist you with the matter.",
            False,
        ),
    ],
)
def test_a_wording_counts_when_it_says_the_same(text: str, answer: str, is_same: bool) -> None:
    assert support.is_same_message(answer, text, IGNORED) is is_same


def test_any_other_text_is_asked_of_the_model_and_checked() -> None:
    intent = Router(LANGUAGES, lambda texts: ()).cue("make this sound friendlier: Your music is too loud, turn it down.")
    assert intent is not None and intent.name == "polite"
    plan = rewriting.polite(intent, CHAT)
    assert isinstance(plan, Grounded) and plan.chat.is_silent and "a more capable model can" in plan.otherwise
    assert plan.is_held("Your music is a bit too loud. Could you please turn it down?", IGNORED)
    assert not plan.is_held("I'm sorry, but I'm not available to play your music.", IGNORED)


@pytest.mark.parametrize(
    "request_",
    [
        "mach den text freundlicher: deine musik ist zu laut",
        "rends ce message plus poli : file-moi tes notes",
        "haz este mensaje más amable: baja la música",
    ],
)
def test_a_language_that_the_model_has_not_learned_is_not_reworded(request_: str) -> None:
    intent = Router(LANGUAGES, lambda texts: ()).cue(request_)
    assert intent is not None and intent.name == "polite"
    said = rewriting.polite(intent, CHAT)
    assert (
        isinstance(said, Say)
        and said.text == intent.language.phrases["no_rewrite"] != Intent("polite", LANGUAGES.english).language.phrases["no_rewrite"]
    )
