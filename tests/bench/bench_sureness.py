"""How sure a tiny or small model must be of general knowledge, so that it is said: both errors, by the probability it is held to.

    python tests/bench/bench_sureness.py --model CHAT.gguf --tier tiny [--facts FILE --unknowable FILE] [--limit N]

Each question of `general_knowledge.txt` (plain facts) and `unknowable.txt` (a household, and the world right now) is put as a
home without notes puts it. Two gates: the kind of the question by its nearest examples, and the probability of the least likely
token of the model's first sentence. Of the facts it is told how many are answered right and wrong, of the others how many are
answered at all, with the model alone and with both gates. No other model judges.
"""

import argparse
import threading
from collections.abc import Sequence
from pathlib import Path

from appliance.language.languages import Languages, words_in
from appliance.language.planning.plans import SAMPLING, SYSTEM, ModelTalk
from appliance.language.router import Router
from appliance.providers.encoder import Encoder
from appliance.providers.llama import Llama, Options
from appliance.records import Ask, Finish, Message, Part, Piece, Route, Tier

HERE = Path(__file__).parent
MINILM = Path.home() / ".cache/owlbox/models/all-MiniLM-L6-v2.Q8_0.gguf"
STEPS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
DIMENSION = 384


def questions(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Each question of a file with the wordings of its answer, none where nobody can know it."""
    lines = (line.partition("|") for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return [(text.strip(), tuple(one.strip().lower() for one in facts.split(";") if one.strip())) for text, _, facts in lines]


def is_right(answer: str, facts: Sequence[str]) -> bool:
    """Whether an answer holds one of the wordings, numbers and short ones as a whole word."""
    words = set(words_in(answer))
    return any(one in words if len(one) < 4 else one in answer.lower() for one in facts)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", type=Path, required=True)
    options.add_argument("--tier", choices=("tiny", "small"), default="tiny")
    options.add_argument("--facts", type=Path, default=HERE / "general_knowledge.txt")
    options.add_argument("--unknowable", type=Path, default=HERE / "unknowable.txt")
    options.add_argument("--limit", type=int, default=0)
    given = options.parse_args()
    tier: Tier = given.tier
    languages, encoder = Languages(), Encoder(MINILM, DIMENSION)
    router = Router(languages, lambda texts: [encoder.embed(text) for text in texts])
    model = Llama(given.model, Options(context=1024))
    english, sampling = languages.english, SAMPLING[tier]
    shots = english.shots["question"] if tier == "tiny" else ()
    rows: list[tuple[bool, bool, bool, float]] = []
    for path, is_fact in ((given.facts, True), (given.unknowable, False)):
        for text, facts in questions(path)[: given.limit or None]:
            own = set(words_in(text)) & (english.words["own"] | english.words["now"])
            is_open = router.kind(text, english) == "world" and not own
            shown = tuple(Message("assistant" if n % 2 else "user", one) for n, one in enumerate(shots))
            chat = ModelTalk(SYSTEM[tier], (*shown, Message("user", text)), 120, 0.0, sampling.repeat_penalty, least_sure=1)
            ask = Ask(
                (Part("system", chat.system),), chat.messages, max_tokens=chat.max_tokens, temperature=0.0,
                repeat_penalty=chat.repeat_penalty, stop=chat.stop, is_measured=True, purpose="bench",
            )  # fmt: skip
            said, sureness = "", 0.0
            for piece in model.generate(Route("local", "llama", model.model, model.window, model.dialect), ask, threading.Event()):
                if isinstance(piece, Finish):
                    sureness = piece.sureness
                elif isinstance(piece, Piece):
                    said += piece.text
            rows.append((is_fact, is_right(said, facts), is_open, sureness))
            kinds = f"{'fact' if is_fact else 'home'} {'open' if is_open else '-':4}"
            print(f"{kinds} {sureness:.2f} {text} -> {said.strip()!r}", flush=True)
    known, other = [row for row in rows if row[0]], [row for row in rows if not row[0]]
    print("\nleast  facts right  wrong  |  home answered  |  both gates: right  wrong  home answered")
    for least in STEPS:
        told = [row for row in known if row[3] >= least]
        gated = [row for row in told if row[2]]
        right, right_gated = sum(row[1] for row in told), sum(row[1] for row in gated)
        made_up, gated_up = sum(row[3] >= least for row in other), sum(row[3] >= least and row[2] for row in other)
        print(
            f"{least:.1f}    {right:4}/{len(known)}    {len(told) - right:4}   |  {made_up:4}/{len(other)}      |  "
            f"{right_gated:4}  {len(gated) - right_gated:4}  {gated_up:4}"
        )


if __name__ == "__main__":
    main()
