"""A program of its own that renders the chat template of a model file, as the ecosystem does, within bounds.

A template is a program by whoever made the file. Here it has no new descriptors, so it opens no file and no socket; limited memory,
and limited processor time for each rendering, after which the kernel ends the process. One line of JSON in, one out; it ends when
its input does, or when nobody has asked for ten minutes. Asked by `template_process`.
"""

import json
import resource
import select
import sys
from datetime import datetime
from typing import Any

IDLE_S = 600.0
RENDER_S = 2  # of processor time
MEMORY_BYTES = 256 << 20  # beside what Python has taken
ROOM = 4, 64 * 1024  # an answer may have so many characters for one of the question, and so many more


def main() -> int:
    """Answer until the input ends."""
    from jinja2 import BaseLoader
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.nodes import Node
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Reads past {% generation %}, which says to trainers what the assistant's words are."""

        tags = {"generation"}

        def parse(self, parser: Parser) -> Node | list[Node]:
            """Parse the content of the tag."""
            parser.stream.skip(1)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    # What a template's own code raises beside jinja's errors: its raise_exception is a ValueError here. What jinja would
    # import late for an error message it cannot open any more.
    problems: tuple[type[Exception], ...] = (TemplateError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
    problems += (RecursionError, MemoryError, OSError, ImportError, AssertionError)
    made: dict[str, Any] = {}

    def render(asked: dict[str, Any]) -> str:
        if "source" in asked:
            extensions = [Generation, loopcontrols]
            form = ImmutableSandboxedEnvironment(loader=BaseLoader(), trim_blocks=True, lstrip_blocks=True, extensions=extensions)
            form.filters["tojson"] = _dump_json
            made.update(template=form.from_string(asked["source"]), tokens=asked["tokens"])
            return ""
        text = made["template"].render(
            messages=asked["messages"],
            add_generation_prompt=True,
            raise_exception=_raise_error,
            strftime_now=_format_now,
            **made["tokens"],
            **asked.get("variables", {}),
        )
        limit = ROOM[0] * len(json.dumps(asked)) + ROOM[1]
        if len(text) > limit:
            raise ValueError(f"it made {len(text)} characters of a conversation that may have {limit}")
        return str(text)

    # Whatever jinja imports when it is first used, and for its first error, is there before files can no longer be opened.
    render({"source": "{{ messages | tojson }}{{ strftime_now('%Y') }}", "tokens": {}})
    render({"messages": [{"content": "x"}]})
    render({"source": "{{ raise_exception('x') }}", "tokens": {}})
    try:
        render({"messages": []})
    except ValueError:
        pass
    _confine_process()
    while select.select([sys.stdin], [], [], IDLE_S)[0] and (line := sys.stdin.readline()):
        _limit_time()
        try:
            answer = {"prompt": render(json.loads(line))}
        except problems as error:
            answer = {"problem": f"{type(error).__name__}: {error}"[:500]}
        try:
            text = json.dumps(answer)
        except MemoryError:
            text = json.dumps({"problem": "its text is too long"})
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    return 0


def _confine_process() -> None:
    size_bytes = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    for what, limit in ((resource.RLIMIT_AS, size_bytes + MEMORY_BYTES), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 0)):
        _set_limit(what, limit, limit)


def _limit_time() -> None:
    """From now on so much processor time until the kernel ends us."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _set_limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + RENDER_S, resource.RLIM_INFINITY)


def _set_limit(what: int, soft: int, hard: int) -> None:
    """Set a limit; where a filter of system calls forbids it, what is left is the time that our parent waits."""
    try:
        resource.setrlimit(what, (soft, hard))
    except (OSError, ValueError):
        print(f"limit {what} cannot be set", file=sys.stderr)


def _dump_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """As the templates' makers have it: letters stay letters."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_error(message: str) -> None:
    raise ValueError(message)


def _format_now(form: str) -> str:
    return datetime.now().strftime(form)


if __name__ == "__main__":
    sys.exit(main())
