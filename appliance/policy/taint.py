"""The rule for tainted runs: which calls are held for approval because the run read untrusted text, and why.

A run that was shown a page, a mail, a server's answer or a document is marked. Reading, answering its own person and
keeping notes stay free. What acts on the world is held: a command, a message to somebody else, a secret, a schedule, a
skill, a prompt document. An address or a server's tool is held when it carries what the person has not said, for that is
how a secret leaves. An address that a stranger listed may be followed, a few times a question: whoever lists many and has
some of them asked learns which. What commands and files of the working folder say marks a run less: commands and searches
go on. Pure: strings in, verdicts out. Not promised: that a choice among few things carries nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from appliance.errors import BadInput, Refused
from appliance.text import urls
from appliance.text.fences import told
from appliance.text.invisible import escape_invisible

Kind = Literal["exec", "web", "search", "send", "call", "secret", "schedule", "skill", "document", "plugin", "device"]
KINDS: Mapping[str, str] = {
    "exec": "run a command",
    "web": "ask the web",
    "search": "search the web",
    "send": "write to somebody",
    "call": "call a server's tool",
    "secret": "use a secret",
    "schedule": "change a schedule",
    "skill": "change a skill",
    "document": "change a prompt document",
    "plugin": "use a plugin's tool",
    "device": "control a device",
}
CARRYING = ("web", "search", "call")  # held only when they carry what the person has not said
INSIDE = ("command", "file")  # origins of what the working folder says
STAYING = ("exec", "search")  # which go on in spite of those: one stays in the sandbox, the other asks one engine
OUTSIDE: Mapping[str, str] = {  # schemes whose texts come from elsewhere
    "url": "web",
    "google-docs": "web",
    "github": "web",
    "disk": "document",
    "sh": "command",
    "env": "command",
}
FREE_BITS = 16  # that choices may carry, for each message of the person: two letters
WAY_BITS = 12  # of how an address is asked for: a time to wait, a number of bytes to read
MAX_BORROWED = 8  # words of a search that only the web has said; none with a digit in it, which PINs and codes have
MAX_WORDS = 12  # of a search that is not the person's own phrase, each once: more could say something by their order
NAMED_BITS = 2  # of an address that the person named without a scheme: http or https, with www. or without
MAX_ASKED = 16  # pages and searches for each message of the person, whatever they carry: in which order says something, too
CALL_BITS = 4  # at least, of a call of a server's tool: four a message
MAX_SAID = 3  # words of the person that a call tells a server before it counts which ones, and where, as a choice
MAX_NAMED = 3  # sources that a text names
FIRST_CHARS, LAST_CHARS = 3000, 1000  # of the arguments that a person is shown: what is put before hides no end
TOOL = "tool"  # the argument of a call that names the server's tool
LINK = re.compile(r"https?://[^\s<>\"'`\\^{|}]+", re.IGNORECASE)
AFTER = ".,;:!?)]}*_>'\""  # what stands behind a link in a text and is no part of it
WORD = re.compile(r"\w+")
FORMS = (str, str.lower, str.upper, str.title)  # of a text, in which all of what is quoted from it may stand
BEFORE_HOST = r"(?<![\w.@-])"  # where the name of a host may begin in a text
AFTER_HOST = r"(?![\w-]|\.\w|:\d)"  # and end
AFTER_PATH = r"(?=[.,;:!?)\]}*_>'\"]*(?:\s|$))"
SOURCES: Mapping[str, str] = {"web": "page", "mail": "mail", "document": "document", "skill": "skill", "agent": "agent"}


class ToolReach(Struct, frozen=True):
    """How a tool's call reaches beyond its run: `target` is the argument that says whom or what, `named` a fixed one.

    `data` are the arguments that leave, () all of them; `usual` are values that say nothing, because everybody gives them.
    `within` is the argument that holds those of the server's tool, where a call names that tool: they are judged as in its own
    call.
    """

    kind: Kind
    target: str = ""
    named: str = ""
    data: tuple[str, ...] = ()
    usual: tuple[float, ...] = ()
    within: str = ""


class Mark(Struct, frozen=True):
    """The source of untrusted text: an origin, and which page, mail or tool exactly, as far as is known."""

    origin: str
    source: str = ""

    @property
    def scope(self) -> str:
        """What a grant names: `web:HOST` for a page, `skill:NAME`, `mcp:NAME` for a server, else the origin."""
        name = host_of(self.source) if self.origin == "web" else self.source if self.origin == "skill" else ""
        return f"{self.origin}:{name}" if name else self.origin

    @property
    def text(self) -> str:
        """In words: `page https://…`, `the server time (time/convert)`."""
        if not self.source:
            return told(self.origin)
        name = SOURCES.get(self.origin)
        return f"{name} {self.source}" if name else f"{told(self.origin)} ({self.source})"


class KnownData(Struct, frozen=True):
    """What a call may carry: `own` is what the person said, `links` what untrusted text listed, `public` what the web said.

    `theirs` is what the called server has said of itself, `followed` how many such calls were made since the person's
    last message, `names` are the arguments that the called tool of a server has, `tools` is how many tools its server has.
    """

    own: str = ""
    links: frozenset[str] = frozenset()
    public: str = ""
    theirs: str = ""
    followed: int = 0
    names: frozenset[str] = frozenset()
    tools: int = 0


def holding(kind: str, marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """The marks for which calls of this kind are held; none when they go on."""
    return tuple(mark for mark in marks if kind not in STAYING or mark.origin not in INSIDE)


def of_path(path: str) -> Mark | None:
    """The mark that a stored path says by itself: a page that was added, a document of the disk, what a command said."""
    scheme, mark, rest = path.partition("://")
    origin = OUTSIDE.get(scheme) if mark else None
    return None if origin is None else Mark(origin, rest)


def because(marks: Sequence[Mark]) -> str:
    """The sources in words, the newest first."""
    texts = list(dict.fromkeys(mark.text for mark in reversed(marks)))
    more = f" and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return "; ".join(texts[:MAX_NAMED]) + more


def carried(reach: ToolReach, target: str, arguments: Mapping[str, Any], known: KnownData) -> tuple[str, ...]:
    """The arguments of a call that carry what the person has not said; () for one that may go on."""
    given = {name: value for name, value in arguments.items() if name != reach.target and (not reach.data or name in reach.data)}
    if reach.kind == "web":
        if known.followed >= MAX_ASKED or not is_free(target, known):
            return (reach.target or "url",)
        ways = [name for name, value in given.items() if value not in (None, *reach.usual) and not has(known.own, str(value))]
        return tuple(ways) if ways and _count_bits(target, known) + WAY_BITS * len(ways) * (known.followed + 1) > FREE_BITS else ()
    if reach.kind == "search":  # what the web said is no secret, and only the search engine is told
        texts = (str(leaf) for value in given.values() for leaf, _ in leaves(value))
        return () if known.followed < MAX_ASKED and all(is_common(text, known) for text in texts) else tuple(given)
    given.pop(TOOL, None)
    if isinstance(inner := given.get(reach.within), Mapping):
        given = dict(inner)
    held, bits = _find_disclosing(given, known)
    return tuple(held or ((*given, TOOL) if bits * (known.followed + 1) > FREE_BITS else ()))


def _find_disclosing(given: Mapping[str, Any], known: KnownData) -> tuple[list[str], int]:
    """The arguments that tell a server more than the person's words and choices, and what the choices may say: which tool it is,
    yes or no, names out of what the server said of itself, and where the words stand."""
    held: list[str] = []
    bits, said = max(CALL_BITS, known.tools.bit_length()), 0
    for name, value in given.items():
        unknown = [] if name in known.names else [(name, True)]  # a server's tool may be given any
        for leaf, is_name in (*unknown, *leaves(value), *((None, False) for _ in range(_count_nested(value)))):
            if leaf in (None, "", 0, 1):
                bits += 1 if leaf in (0, 1) else 2
            elif says(known.own, str(leaf)):
                said += 1
                bits += len(set(WORD.findall(known.own))).bit_length() if said > MAX_SAID else 0
            elif is_name and says(known.theirs, str(leaf)):
                bits += len(set(WORD.findall(known.theirs))).bit_length()
            else:
                held.append(name)
                break
    return held, bits


def _count_nested(value: Any) -> int:
    """How many tables and lists are within a value, which say something by where they are."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple | set):
        return 0
    return sum(isinstance(one, Mapping | list | tuple | set) + _count_nested(one) for one in value)


def canonical(reach: ToolReach, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call with an address, or the words of a search, in the form in which they will leave.

    That is what is judged and shown. BadInput or Refused for an address that `web.fetch` would not read either: nobody is asked
    about it. What is no address of the web, such as a reference, stays as it is.
    """
    given = dict(arguments)
    for name in (reach.target,) if reach.kind == "web" else reach.data if reach.kind == "search" else ():
        if isinstance(value := given.get(name), str):
            is_address = value.strip().lower().startswith(("http:", "https:"))
            given[name] = " ".join(value.split()) if reach.kind == "search" else urls.parse(value).url if is_address else value
    return given


def shown(arguments: Mapping[str, Any]) -> str:
    """The arguments of a call, as a person is shown them before they decide."""
    given = escape_invisible(json.dumps(arguments, ensure_ascii=False), "exact")
    if (hidden := len(given) - FIRST_CHARS - LAST_CHARS) > 0:
        return f"{given[:FIRST_CHARS]}\n[… {hidden} characters that are not shown …]\n{given[-LAST_CHARS:]}"
    return given


def is_cut(arguments: Mapping[str, Any]) -> bool:
    """Whether a person is shown only a part of them."""
    return len(escape_invisible(json.dumps(arguments, ensure_ascii=False), "exact")) > FIRST_CHARS + LAST_CHARS


def url_of(text: str) -> str:
    """An address in its one form, one without a scheme as with https; "" for what is none."""
    try:
        return urls.parse(text if "://" in text else f"https://{text.strip()}").url
    except (BadInput, Refused):
        return ""


def is_free(url: str, known: KnownData) -> bool:
    """Whether an address says little: the person named it, or untrusted text listed it; the more there are, the fewer may be."""
    one = url_of(url)
    return bool(one) and (one in known.links or is_said(one, known.own)) and _count_bits(one, known) <= FREE_BITS


def is_said(url: str, own: str) -> bool:
    """Whether the person named an address letter by letter, or a host whose first page it is.

    Not its parts one by one: the person may have said a secret in the same breath as the address of a page.
    """
    one = url_of(url)
    return bool(one) and (one in links(own) or _is_named(urls.parse(one), own))


def _is_named(target: urls.Target, own: str) -> bool:
    """Whether a text names an address without its scheme, or only the host whose first page it is."""
    names = "|".join(re.escape(name.removeprefix("www.")) for name in dict.fromkeys((target.host, target.name)))
    port = "" if target.port == urls.PORTS[target.scheme] else f":{target.port}"
    host = rf"{BEFORE_HOST}(?i:(?:www\.)?(?:{names})){port}"
    # Of a path capital and small letters are two, and which of them one writes would say something.
    whole = rf"{host}{re.escape(target.path)}{AFTER_PATH}"
    return re.search(whole, own) is not None or (target.path == "/" and re.search(host + AFTER_HOST, own) is not None)


def _count_bits(url: str, known: KnownData) -> int:
    """What choices among addresses may have said since the person's last message, this one included; 0 for one typed whole."""
    one = url_of(url)
    if not one or one in links(known.own):
        return 0
    each = NAMED_BITS if is_said(one, known.own) else len(known.links).bit_length()
    return (known.followed + 1) * each


def links(text: str) -> frozenset[str]:
    """The addresses in a text, in their one form."""
    found = set()
    for match in LINK.finditer(text):
        link = match[0]
        ends = {link.rstrip(AFTER), link.rstrip(AFTER.replace(")", "") if "(" in link else AFTER)}
        found |= {one for end in ends if (one := url_of(end))}
    return frozenset(found)


def is_common(query: str, known: KnownData) -> bool:
    """Whether a search says nothing but words: a phrase of the person, or a few of their words and of the web's, each once.

    All of it is looked at: signs that stand where nobody wrote them, a word twice and mixed capitals could each say something.
    """
    phrase = " ".join(query.split())
    if says(known.own, phrase):
        return True
    words = phrase.split()
    bare = ["".join(WORD.findall(word)).casefold() for word in words]
    if len(words) > MAX_WORDS or len(set(bare)) < len(bare) or "" in bare:
        return False
    borrowed = [word for word in words if not has(known.own, word)]
    if len(borrowed) > MAX_BORROWED or not all(_is_plain(word) and has(known.public, word) for word in borrowed):
        return False
    text = f"{known.own}\n{known.public}"
    return any(all(_stands_alone(form(text), word) for word in words) for form in FORMS) or (
        phrase == phrase.capitalize() and all(_stands_alone(text.lower(), word) for word in phrase.lower().split())
    )


def _is_plain(word: str) -> bool:
    """Whether a word has letters alone, with single hyphens and apostrophes between them."""
    return all(part.isalpha() for part in re.split("['’-]", word))


def has(text: str, part: str) -> bool:
    """Whether a text says a part of it word for word, in whatever case and with whatever white space; not within a word."""
    return _stands_alone(_flatten_text(text), _flatten_text(part))


def says(text: str, part: str) -> bool:
    """The same letter by letter: only small letters, capitals or first capitals may stand for others, and no blanks for others."""
    if part != " ".join(part.split()):
        return _stands_alone(text, part)
    text = " ".join(text.split())
    return any(_stands_alone(form(text), part) for form in FORMS) or (
        part == part.capitalize() and _stands_alone(text.lower(), part.lower())
    )


def _stands_alone(text: str, part: str) -> bool:
    at = text.find(part) if part else -1
    while at >= 0:
        end = at + len(part)
        is_begun = at == 0 or not (text[at - 1].isalnum() and part[0].isalnum())
        is_ended = end == len(text) or not (text[end].isalnum() and part[-1].isalnum())
        if is_begun and is_ended:
            return True
        at = text.find(part, at + 1)
    return not part


def leaves(value: Any) -> Iterator[tuple[Any, bool]]:
    """Every single value in an argument, and whether it is the name of another one."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name), True
            yield from leaves(inner)
    elif isinstance(value, list | tuple | set):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value, False


def host_of(url: str) -> str:
    """The host of an address, without www; "" for what is none."""
    one = url_of(url)
    return urls.parse(one).host.removeprefix("www.") if one else ""


def _flatten_text(text: str) -> str:
    return " ".join(text.split()).casefold()
