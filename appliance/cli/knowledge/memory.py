"""The commands about what is remembered: `owlbox memory`, made from the definitions of their methods."""

import argparse
from typing import Any

from appliance.clock import local_time
from appliance.console.inputs import read_text
from appliance.console.verbs import Noun, Verb
from appliance.text.references import for_people

ROWS = "memory=ref record.kind record.importance changed=day whose=record.owner text=record.text~"
CELLS = {
    "ref": lambda one: str(one["ref"]).removeprefix("memory://"),
    "day": lambda one: local_time(one["record"]["updated_ms"])[:10],
}
NONE = "nothing is remembered"


def days(text: str) -> int:
    """Days as seconds."""
    return round(float(text) * 86_400)


def _tell_kept(args: argparse.Namespace, done: dict[str, Any]) -> list[str]:
    return [f"{'Kept as' if done['is_new'] else 'Brought up to date:'} {for_people(done['ref'])}"]


# fmt: off
SEARCH = Verb("search", "memory.list", "query+ --limit@10 --owner", rows=ROWS, cells=CELLS,
              empty="nothing that is remembered has {query!r} in it", helps={"query": "words"})
NOUNS = (
    Noun("memory", "memories: list, add, search, forget", (
        Verb("list", "memory.list", "--topic --kind --tag --limit --owner", rows=ROWS, cells=CELLS, empty=NONE,
             helps={"topic": "only of this topic", "kind": "only of this kind", "tag": "only with this tag"}),
        Verb("add", "memory.write", "text+ --topic --tag=tags --importance --days=ttl_s --owner", says=_tell_kept,
             reads={"days": days}, helps={"text": "what", "topic": "of which topic", "tag": "a tag; may be given more than once",
                                          "importance": "1 to 10 (5)", "days": "forget it after so many days"}),
        SEARCH,
        Verb("show", "memory.view", text="show one memory as a file", says=lambda args, found: found["file"].rstrip("\n")),
        Verb("import", "memory.import", "file --owner", text="keep a memory as a file has it, with its id and its times",
             says=_tell_kept, reads={"file": read_text}, helps={"file": "as `memory show` prints it; - reads a pipe"}),
        Verb("forget", "memory.forget", asks=("memory.view", "Forget {record[title]!r}?"),
             says="Forgot {title}. Conversations and backups keep what they hold."),
        Verb("move-topic", "memory.move_topic", "old new --merge=is_merging --owner", text="rename a topic, or merge two",
             says="memories moved from {old} to {new}: {result}"),
        Verb("topics", "memory.topics", text="topics, with the number of memories", rows="topic=name records=count", empty=NONE),
    )),
)
