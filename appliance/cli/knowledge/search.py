"""`owlbox search`: one command for what is found by words, by meaning or letter by letter, wherever it is.

Each search is one tool or method, which has a command of its own too; arguments that are not here are there.
"""

import argparse

from appliance.console.verbs import Verb, call
from appliance.errors import BadInput
from appliance.runtime.paths import Home

WAYS = {"words": "search", "meaning": "search_semantic", "letters": "context_search", "pattern": "context_grep"}
PLACES = ("threads", "memory", "skills", "tools")
LIMITS = {"meaning": "top_k", "pattern": "max_results", "threads": "max_results"}


def search(args: argparse.Namespace, home: Home) -> int:
    """Find it there, as the command of that place does."""
    if args.by != "words" and args.place != "notes":
        raise BadInput(f"--by {args.by} is for notes, not for {args.place}", hint="leave out --by or --in")
    way = args.by if args.place == "notes" else args.place
    verb = Verb("search", f"tool {WAYS[way]}") if way in WAYS else _search_of(way)
    words = " ".join(args.query)
    return call(args, home, verb, {"pattern" if way == "pattern" else "query": words, LIMITS.get(way, "limit"): args.limit})


def _search_of(place: str) -> Verb:
    """How a place is searched; only the module of that place is imported."""
    if place == "threads":
        from appliance.cli import session

        return session.SEARCH
    if place == "memory":
        from appliance.cli.knowledge import memory

        return memory.SEARCH
    if place == "skills":
        from appliance.cli.knowledge import skill

        return skill.SEARCH
    from appliance.cli import mcp

    return mcp.SEARCH


def _add_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("query", nargs="+", help="words to look for")
    made.add_argument("--in", dest="place", choices=("notes", *PLACES), default="notes", help="where: notes and files without")
    made.add_argument("--by", choices=tuple(WAYS), default="words", help="how notes are found: words as they are written")
    made.add_argument("--limit", type=int, default=5, help="how many to show (5)")


NOUNS = (Verb("search", text="find notes; with --in also threads, memory, skills, tools", handler=search, adds=_add_options),)
