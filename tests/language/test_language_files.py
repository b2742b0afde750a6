"""What people type is data: no module holds a word or a pattern of a natural language, and a language is one file.

What is looked for: regular expressions, lists of words that are split, and sets that words are compared with, anywhere in the
product. In the rooms that read what a person types no word of the lists of the language files may stand in one; in the others,
whose expressions read formats, protocols and messages of programs, no word by which a sentence of a person is told: one that
stands for somebody, asks, or is an article, or a function word of a language that no program speaks. Texts that are only shown
do not count, nor do names of parts, intents and kinds of tokens.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.language import languages
from appliance.language.languages import TABLES, Languages
from appliance.language.times.lexicon import KINDS

APPLIANCE = Path(__file__).parents[2] / "appliance"
READING = ("language", "agent", "knowledge", "memory", "prompt", "tools", "work", "sessions", "ingest")
LISTS = ("common", "question", "verbs", "own", "again", "you", "now", "past", "tell", "titles", "everybody")
SPEAKING = frozenset(
    """
    i me my mine we us our ours you your yours he she him his her hers they them their theirs who whom whose what which where
    when why how the an this these please
    """.split()
)
SYNTAX = re.compile(r"\\[bdwsWSD]|\(\?[:=!<iP]|\[\^")
NOT_READ = re.compile(r"\(\?P?<\w+>|\\[a-zA-Z]|\{\w+\}")
FUNCTIONS = ("compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer")
EXCEPTIONS = {  # modules whose expressions read what a program wrote, with words in it
    "language.times.recurrence": "rules as they are stored, 'every 2 weeks from 2026-01-01'",
    "sessions.transcripts": "an error of SQLite",
    "ingest.notes": "a line that the program wrote into the file itself",
    "ingest.card_text": "the properties of vCard and iCalendar",
    "ingest.extract": "the fields in the head of a mail",
    "providers.error_mapping": "errors of providers",
    "providers.http_provider": "errors of providers",
    "policy.blocked_commands": "commands of a shell and the letters of their options",
    "text.patterns": "the language of XPath",
    "channels.mail.reading": "marks that mail programs put into a mail",
    "tui.message_widgets": "the frame that the program puts around a long result",
}


@functools.cache
def words_of_languages() -> frozenset[str]:
    return frozenset().union(*(languages.all_words(name) for name in LISTS))


@functools.cache
def foreign_words() -> frozenset[str]:
    """Those that are no English ones."""
    english = languages.read_shipped("en")["words"]
    ours = {word for name in LISTS for word in str(english.get(name, "")).lower().split()}
    return frozenset(word for word in words_of_languages() - ours if len(word) > 3)


def constants(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The texts of a module that are matched against another: expressions, lists of words, sets of words."""
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if isinstance(parents[id(node)], ast.Expr):
            continue  # a docstring
        above = parents[id(node)]
        while isinstance(above, ast.JoinedStr | ast.BinOp | ast.FormattedValue):
            above = parents[id(above)]
        is_call = isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute)
        if is_call and above.func.attr in FUNCTIONS and getattr(above.func.value, "id", "") in ("re", "regex"):
            yield node.lineno, NOT_READ.sub(" ", node.value)
        elif SYNTAX.search(node.value):
            yield node.lineno, NOT_READ.sub(" ", node.value)
        elif isinstance(above, ast.Attribute) and above.attr == "split":
            yield node.lineno, node.value
        elif isinstance(above, ast.Set) and isinstance(parents[id(above)], ast.BinOp) and node.value not in KINDS:
            yield node.lineno, node.value if node.value.isalpha() else ""


def found_in(module: str, source: str) -> list[str]:
    """The words of people in what a module matches texts against."""
    wanted = words_of_languages() if module.split(".")[0] in READING else foreign_words() | SPEAKING
    found = []
    for line, text in constants(ast.parse(source)):
        words = [word for word in re.findall(r"[^\W\d_]{2,}", text.lower()) if word in wanted]
        found += [f"{module}:{line} {' '.join(words)}"] if words else []
    return found


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(APPLIANCE.rglob("*.py")):
        yield ".".join(path.relative_to(APPLIANCE).with_suffix("").parts), path


def test_no_module_holds_words_or_patterns_of_a_language() -> None:
    found = [one for module, path in modules() if module not in EXCEPTIONS for one in found_in(module, path.read_text("utf-8"))]
    assert found == []


def test_no_exception_is_left_that_is_none() -> None:
    paths = dict(modules())
    assert [module for module in EXCEPTIONS if not found_in(module, paths[module].read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "line",
    [
        "X = re.compile(r'^(?:the|my) ')",
        "X = r'\\b(?:nicht|kein)\\b'",
        "X = 'is are was'.split()",
        "def f(words): return words & {'did', 'had'}",
        "X = re.sub(f'{1} ich', '', t)",
    ],
)
def test_a_word_of_a_language_is_noticed(line: str) -> None:
    assert found_in("agent.guide", line)


def test_only_english_is_named_outside_the_files() -> None:
    """No code does one thing for German and another for French; English stands for what has no language."""
    names = set(languages.shipped_names()) - {languages.FIRST}
    found = []
    for module, path in modules():
        if module.split(".")[0] in ("language", "agent"):
            tree = ast.parse(path.read_text("utf-8"))
            found += [f"{module}:{n.lineno}" for n in ast.walk(tree) if isinstance(n, ast.Constant) and n.value in names]
    assert found == []


def test_every_table_and_expression_of_a_file_is_one_that_is_read() -> None:
    source = "\n".join(path.read_text("utf-8") for _, path in modules())
    for name in languages.shipped_names():
        given = languages.read_shipped(name)
        assert set(given) <= set(TABLES)
        names = {one for one in given.get("expressions", {}) if not one.startswith("says_")}
        inner = "\n".join(
            str(languages.read_shipped(one).get(table)) for one in languages.shipped_names() for table in ("expressions", "kinds")
        )
        unread = [one for one in names if f'"{one}"' not in source and f"'{one}'" not in source and f"<{one}>" not in inner]
        assert unread == [], name
    Languages().english.check()
