"""What a source file defines, as a few lines: the names that somebody looking for it would type.

Owns the outlines of source code, by the ending of the file's name. Python is parsed; in other languages
comments and texts are blanked and each line is looked at by itself. Pure text in, text out. Not promised:
that every definition of a language is found, nor that `ast` survives hostile Python (its parser may exhaust
the C stack), so Python is outlined where a crash costs nothing: see `ingest.extract_process`.
"""

import ast
import re
from collections.abc import Iterator

MAX_CHARS = 2000  # as long as a description may be
MAX_LINE = 300  # of a line that is looked at: longer ones are generated
MAX_MEMBERS = 40  # named of one class
SIGNATURE_CHARS = 80

LANGUAGES = {
    "python": "py pyi pyw",
    "javascript": "js mjs cjs jsx ts tsx mts cts",
    "go": "go",
    "rust": "rs",
    "java": "java",
    "kotlin": "kt kts",
    "swift": "swift",
    "csharp": "cs",
    "php": "php",
    "c": "c h cc cpp cxx hh hpp hxx",
    "ruby": "rb",
    "shell": "sh bash zsh",
    "lua": "lua",
    "sql": "sql",
    "perl": "pl pm",
}
ENDINGS = {ending: language for language, endings in LANGUAGES.items() for ending in endings.split()}

_C_COMMENT = r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)"
_TEXT = r'"(?:\\.|[^"\\\n])*"?'
_APOSTROPHE = r"'(?:\\.|[^'\\\n])*'?"
_BACKTICK = r"`(?:\\.|[^`\\])*`?"
_HASH = r"(?:^|(?<=\s))\#[^\n]*"
# What holds no definition although it may look like one.
_BLANKED = {
    "javascript": f"{_C_COMMENT}|{_TEXT}|{_APOSTROPHE}|{_BACKTICK}",
    "go": rf"{_C_COMMENT}|{_TEXT}|`[^`]*`?|'(?:\\.|[^'\\\n])'",
    "rust": rf"{_C_COMMENT}|{_TEXT}|'(?:\\[^'\n]+|[^'\\\n])'",
    "ruby": f"{_HASH}|{_TEXT}|{_APOSTROPHE}",
    "shell": f"{_HASH}|{_TEXT}|'[^']*'?",
    "perl": f"{_HASH}|{_TEXT}",
    "lua": rf"--\[\[[\s\S]*?(?:\]\]|\Z)|--[^\n]*|{_TEXT}|{_APOSTROPHE}",
    "sql": r"--[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|'[^']*'?",
    "php": f"{_C_COMMENT}|{_HASH}|{_TEXT}|{_APOSTROPHE}",
}
_C_LIKE = f"{_C_COMMENT}|{_TEXT}|{_APOSTROPHE}"

_MODIFIERS = (
    r"(?:(?:public|private|protected|internal|static|final|abstract|sealed|open|override|async|partial|data|inline|virtual"
    r"|fileprivate|mutating|suspend|readonly|export|default|declare)\s+)*"
)
_TYPES = rf"^\s*{_MODIFIERS}(?P<kind>class|interface|enum|record|struct|protocol|trait|object|namespace|extension)\s+(?P<name>\w+)"
_METHOD = rf"^\s+{_MODIFIERS}(?:<[^>]*>\s+)?[\w<>\[\],.?]+\s+(?P<name>\w+)\s*\([^;]*$"
# The definitions of each language: `name` is what is defined, `kind` the word for it where it varies.
_LINES = {
    "javascript": (
        _TYPES,
        r"^(?:export\s+)?(?:default\s+)?(?:async\s+)?(?P<kind>function)\s*\*?\s*(?P<name>[\w$]+)",
        r"^(?:export\s+)?(?:const|let|var)\s+(?P<name>[\w$]+)\s*(?::[^=]+)?=\s*(?:async\s*)?(?:\([^)]*\)|[\w$]+)\s*(?::[^=]+)?=>",
        r"^(?:export\s+)?(?:declare\s+)?(?P<kind>type)\s+(?P<name>\w+)",
    ),
    "go": (r"^(?P<kind>func)\s+(?:\([^)]*\)\s*)?(?P<name>\w+)", r"^(?P<kind>type)\s+(?P<name>\w+)"),
    "rust": (
        r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:(?:default|const|async|unsafe|extern)\s+)*(?P<kind>fn)\s+(?P<name>\w+)",
        r"^(?:pub(?:\([^)]*\))?\s+)?(?P<kind>struct|enum|trait|mod|type|union)\s+(?P<name>\w+)",
        r"^(?P<kind>macro_rules)!\s*(?P<name>\w+)",
    ),
    "java": (_TYPES, _METHOD),
    "csharp": (_TYPES, _METHOD),
    "kotlin": (_TYPES, rf"^\s*{_MODIFIERS}(?P<kind>fun)\s+(?:<[^>]*>\s*)?(?:[\w.<>?]+\.)?(?P<name>\w+)"),
    "swift": (_TYPES, rf"^\s*{_MODIFIERS}(?P<kind>func)\s+(?P<name>\w+)"),
    "php": (_TYPES, rf"^\s*{_MODIFIERS}(?P<kind>function)\s+&?(?P<name>\w+)"),
    "c": (
        r"^(?:typedef\s+)?(?P<kind>struct|class|enum|union|namespace)\s+(?P<name>\w+)\s*(?:[{:]|$)",
        r"^\#\s*(?P<kind>define)\s+(?P<name>\w+)\(",
        r"^(?!(?:else|return|typedef|if|for|while|switch)\b)[A-Za-z_][\w \t*&:<>,]*?[ \t*&](?P<name>[A-Za-z_~][\w:~]*)\s*\([^;]*$",
    ),
    "ruby": (r"^\s*(?P<kind>class|module)\s+(?P<name>[\w:]+)", r"^\s*(?P<kind>def)\s+(?P<name>[\w.]+[?!=]?)"),
    "shell": (r"^(?:function\s+)?(?P<name>[\w-]+)\s*\(\)", r"^function\s+(?P<name>[\w-]+)"),
    "lua": (r"^\s*(?:local\s+)?(?P<kind>function)\s+(?P<name>[\w.:]+)",),
    "sql": (
        r"(?i)^\s*create\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+|unique\s+|virtual\s+|materialized\s+)*"
        r"(?P<kind>table|view|index|trigger|function|procedure)\s+(?:if\s+not\s+exists\s+)?(?P<name>[\w.\"]+)",
    ),
    "perl": (r"^\s*(?P<kind>sub)\s+(?P<name>\w+)", r"^(?P<kind>package)\s+(?P<name>[\w:]+)"),
}
_NOT_NAMES = frozenset("if for while switch catch return else new using lock foreach do try sizeof function".split())


def language_of(name: str) -> str:
    """The language that a file's name says it is written in, "" for no source code that is known here."""
    return ENDINGS.get(name.rpartition(".")[2].lower(), "") if "." in name else ""


def outline(text: str, name: str) -> str:
    """The definitions in a source file by its name, at most `MAX_CHARS`; "" when there are none, or it is no source code."""
    language = language_of(name)
    if language == "python":
        return _join_lines(_outline_python(text))
    return _join_lines(_outline_plain(text, language)) if language else ""


def _join_lines(lines: Iterator[str]) -> str:
    """As many lines as there is room for, and how many more there are."""
    kept: list[str] = []
    size = left = 0
    for line in dict.fromkeys(lines):
        size += len(line) + 1
        if left or size > MAX_CHARS - 40:
            left += 1
        else:
            kept.append(line)
    return "\n".join([*kept, *([f"… and {left} more"] if left else [])])


# -- Python -----------------------------------------------------------------------------------------


def _outline_python(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    if said := ast.get_docstring(tree):
        yield said.strip().partition("\n")[0][:MAX_LINE]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield _outline_class(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"def {node.name}({_format_parameters(node)})"


def _outline_class(node: ast.ClassDef) -> str:
    bases = ", ".join(_shorten_text(ast.unparse(base)) for base in node.bases[:5])
    inside = [n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    names = [name for name in inside if not name.startswith("_")] or [name for name in inside if not name.startswith("__")]
    more = f", … and {len(names) - MAX_MEMBERS} more" if len(names) > MAX_MEMBERS else ""
    members = f": {', '.join(dict.fromkeys(names[:MAX_MEMBERS]))}{more}" if names else ""
    return f"class {node.name}{f'({bases})' if bases else ''}{members}"


def _format_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    given = node.args
    names = [a.arg for a in (*given.posonlyargs, *given.args)]
    names += [f"*{given.vararg.arg}"] if given.vararg else []
    names += [a.arg for a in given.kwonlyargs]
    names += [f"**{given.kwarg.arg}"] if given.kwarg else []
    return _shorten_text(", ".join(names))


def _shorten_text(text: str) -> str:
    return text if len(text) <= SIGNATURE_CHARS else f"{text[: SIGNATURE_CHARS - 1]}…"


# -- other languages --------------------------------------------------------------------------------


def _outline_plain(text: str, language: str) -> Iterator[str]:
    known = [re.compile(pattern) for pattern in _LINES[language]]
    for line in _blank_comments(text, language).splitlines():
        if not line.strip() or len(line) > MAX_LINE:
            continue
        found = next((match for pattern in known if (match := pattern.search(line))), None)
        if found is None or found["name"] in _NOT_NAMES or line.lstrip().startswith(("return ", "new ", "throw ", "else ")):
            continue
        parts = found.groupdict()
        yield f"{(parts.get('kind') or 'def').lower()} {parts['name']}"


def _blank_comments(text: str, language: str) -> str:
    """The text without its comments and texts; lines stay where they are."""
    return re.sub(_BLANKED.get(language, _C_LIKE), lambda found: "\n" * found[0].count("\n"), text, flags=re.MULTILINE)
