"""`owlbox search`: one command for what is found by words, by meaning or letter by letter, wherever it is.

Each search is one tool or method, which has a command of its own too; arguments that are not here are there. Each takes the parsed
arguments and the home and returns the exit code, as in `cli.listings`.
"""

import argparse

from appliance.cli import listings
from appliance.cli.console import tool_command
from appliance.cli.console.parser import Command
from appliance.errors import BadInput
from appliance.runtime.paths import Home

PLACES = ("notes", "threads", "memory", "skills", "tools")
WAYS = {"meaning": "search_semantic", "letters": "context_search", "pattern": "context_grep"}


def add(command: Command) -> None:
    """Add the command; words and --limit are those of its tool."""
    made = command("search", search, "find notes; with --in also threads, memory, skills, tools")
    (of_tool,) = (one for one in tool_command.tool_commands() if one.command == "search")
    made.set_defaults(tool=of_tool.tool, fields=[option.name for option in of_tool.options])
    made.set_defaults(owner="", keyword_only=False, semantic_only=False)  # for the searches of other places
    made.add_argument("query", nargs="+", help="words to look for")
    made.add_argument("--in", dest="place", choices=PLACES, default="notes", help="where: notes and files without")
    made.add_argument("--by", choices=("words", *WAYS), default="words", help="how notes are found: words as they are written")
    made.add_argument("--limit", type=int, default=5, help="how many to show (5)")


def search(args: argparse.Namespace, home: Home) -> int:
    """Find it there, as the command of that place does."""
    words = " ".join(args.query)
    if args.by != "words" and args.place != "notes":
        raise BadInput(f"--by {args.by} is for notes, not for {args.place}", hint="leave out --by or --in")
    if args.by != "words":
        number = {"meaning": "top_k", "letters": "limit", "pattern": "max_results"}[args.by]
        given = {"pattern" if args.by == "pattern" else "query": words, number: args.limit}
        return tool_command.run_tool(args, home, WAYS[args.by], given)
    if args.place == "threads":
        return tool_command.run_tool(args, home, "search_history", {"query": words, "max_results": args.limit})
    if args.place == "memory":
        from appliance.cli.knowledge import memory

        return memory.search(args, home)
    if args.place == "skills":
        from appliance.cli.knowledge import skill

        return skill.search(args, home)
    if args.place == "tools":
        from appliance.cli import mcp

        return mcp.search(args, home)
    return listings.tool(args, home)
