"""Commands that are refused before anything is started, by what would be run and not by how it is spelled.

Defence in depth: the sandbox is what holds a command, and this list is what explains to a model early that some things
will not work. Pure. A pattern is a command name, a command with arguments that must be among its own, or a piece of a
line with operators in it, `*` for any characters. Only what stands where a shell takes a command counts, so words such as
`summary`, `environment.txt` or `grep format` pass. Patterns that people add come after the built-in ones, which nothing
takes away. Not promised: that a command in disguise is found.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from posixpath import normpath

from msgspec import Struct

from appliance.policy.shell_parser import Read, Simple, read

FORK_BOMB = "fork bomb"
PIPED = "curl | bash"
TO_DISK = "> /dev/sd*"
ROOT_GONE = "rm -rf /"
SET_ID = "chmod +s"
TOO_DEEP = "commands nested too deeply"
MAX_CHAIN = 20  # commands that run one another, such as `nice timeout 5 make`
BUILT_IN = (
    *(ROOT_GONE, "del /f", "rmdir /s", "format", "mkfs", "shutdown", "reboot", FORK_BOMB, PIPED, TO_DISK),
    *("docker", "podman", "container", "sudo", "su", "doas", SET_ID, "chown"),
    *("curl", "wget", "nc", "netcat", "ssh", "scp", "printenv", "env"),
)
SPECIAL = (ROOT_GONE, FORK_BOMB, PIPED, TO_DISK, SET_ID)  # found by code of their own
ENDINGS = ("com", "exe", "traditional", "openbsd")  # of the same command under another name
SHELLS = frozenset("sh bash dash ash zsh ksh mksh fish csh tcsh busybox".split())
INTERPRETERS = frozenset("python perl ruby node php lua awk gawk mawk tclsh".split())
DOWNLOADS = frozenset("curl wget fetch aria2c http https lynx ftp axel".split())
KEYWORDS = frozenset("if then elif else do while until ! { } time coproc".split())
NO_COMMAND = frozenset("for case select in esac done fi".split())  # what follows is no command
# Commands that run another one: letters of options that take a value, and how many words of their own come before it.
RUNNERS = {
    name: (letters, int(own or 0))
    for name, letters, own in (
        word.split(":")
        for word in (
            "xargs:IiLnPsdEa: timeout:ks:1 nice:n: ionice:cnpt: nohup:: setsid:: stdbuf:ioe: time:fo: command:: builtin:: exec:a: "
            "watch:n: strace:eopsuE: ltrace:eopsu: flock:wE:1 chrt::1 taskset::1 busybox:: toybox:: parallel:jNaI: unshare:: "
            "chroot::1 script:cEmIOBt: setarch::1 fakeroot:: env:uCS: bwrap:: trap:: start-stop-daemon:: sudo:ugpCD: doas:uC:"
        ).split()
    )
}
TAKING = frozenset("eval alias source . su".split())  # commands that take others as text
STARTERS = frozenset("-exec -execdir -ok -okdir -x -X --exec --exec-batch".split())  # of find and fd
ASSIGNMENT = re.compile(r"(?:export |alias )?\w+\+?=(.*)", re.DOTALL)
LITERAL = re.compile(r"'([^'\\\n]*)'|\"([^\"\\\n]*)\"")
RUNNING = re.compile(r"system|popen|spawn|exec|process|passthru|\brun\b|call|output|getline|pipe|pty|\bsh\b|[`|]", re.IGNORECASE)
DISK = re.compile(r"(?:of=)?/dev/(?:[shv]d|xvd|nvme|mmcblk|disk|mapper/|md\d|dm-|loop\d)", re.IGNORECASE)
MODE = re.compile(r"[ugoa]*[+=][rwxXt]*s[rwxXst]*(?:,.*)?|0*[2-7]\d{3}|.*,[ugoa]*[+=][rwxXt]*s.*")
OPERATORS = re.compile(r"[|&;<>(){}]")
NAMED = r"(?<![^\s(){};|&])([^\s(){};|&]{1,64})"
FUNCTION = re.compile(NAMED + r"\s{0,8}\(\s{0,8}\)\s{0,8}\{([^}]{0,300})\}")
FUNCTION_WORD = re.compile(r"\bfunction\s{1,8}([^\s(){};|&]{1,64})\s{0,8}(?:\(\s{0,8}\))?\s{0,8}\{([^}]{0,300})\}")
FORKING = re.compile(
    r"\bfork\s{0,4}(?:\(\s{0,4}\))?\s{0,4}(?:while|until)\s{0,4}\(?\s{0,4}(?:fork|1|true)\b|\bwhile\b[^;]{0,160}?\bfork\s{0,4}\("
    r"|%0\s{0,4}\|\s{0,4}%0"
)
SELF = re.compile(r"\$0\s{0,8}(?:\|\s{0,8}\$0\s{0,8})?&(?!&)")


class _Pattern(Struct, frozen=True):
    """A refused command: its name, and words that must be among its arguments."""

    text: str
    name: str
    more: tuple[str, ...]

    def fits(self, name: str, rest: frozenset[str]) -> bool:
        stem, _, ending = name.partition(".")
        is_name = fnmatchcase(name, self.name) or stem == self.name and (ending in ENDINGS or self.name == "mkfs")
        return is_name and all(any(fnmatchcase(word, more) for word in rest) if "*" in more else more in rest for more in self.more)


class Forbidden:
    """The built-in patterns and those that people add."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        texts = [*BUILT_IN, *(text for text in map(_normalize_blanks, more) if text)]
        self.patterns = tuple(dict.fromkeys(texts))
        simple = [p for p in self.patterns if p not in SPECIAL and not OPERATORS.search(p)]
        self._commands = tuple(_Pattern(p, p.split()[0], tuple(p.split()[1:])) for p in simple)
        self._lines = tuple(p for p in self.patterns if p not in SPECIAL and OPERATORS.search(p))

    def match(self, command: str) -> str:
        """The pattern that speaks against a command line; "" when none does."""
        if _is_fork_bomb(command):
            return FORK_BOMB
        plain = _normalize_blanks(command)
        for line in self._lines:
            if fnmatchcase(_close_operators(plain), f"*{_close_operators(line)}*"):
                return line
        return self._find_blocked(read(command))

    def _find_blocked(self, found: Read, depth: int = 0) -> str:
        if found.is_too_deep or depth > 8:
            return TOO_DEEP
        has_made = any(map(_has_made, found.pipelines))
        for pipeline in found.pipelines:
            if pattern := self._of_pipeline(pipeline, has_made, depth):
                return pattern
        return ""

    def _of_pipeline(self, pipeline: list[Simple], has_made: bool, depth: int) -> str:
        names = [next((name for name, _ in _list_commands(simple.words)), "") for simple in pipeline]
        shells = [i for i, name in enumerate(names) if name in SHELLS or _family_of(name) in INTERPRETERS]
        if shells and any(name in DOWNLOADS for name in names[: shells[-1]]):
            return PIPED
        last = max((i for i in shells if names[i] in SHELLS), default=-1)
        for i, simple in enumerate(pipeline):
            if pattern := self._of_simple(simple, depth):
                return pattern
            # What is said into a shell is run by it.
            is_heard = i < last
            spoken = simple.words[1:] if is_heard and names[i] in ("echo", "printf", "cat") else []
            spoken += simple.texts if names[i] in SHELLS or is_heard else []
            if has_made:  # X=sudo; $X ls
                spoken += [found[1] for word in simple.words if (found := ASSIGNMENT.fullmatch(word))]
            for text in spoken:
                if pattern := self._find_blocked(read(text), depth + 1):
                    return pattern
        return ""

    def _of_simple(self, simple: Simple, depth: int) -> str:
        if any(DISK.match(target) for operator, target in simple.targets if ">" in operator):
            return TO_DISK
        rest = frozenset(_normalize_blanks(word) for word in simple.words[1:])
        for count, (name, at) in enumerate(_list_commands(simple.words)):
            if count >= MAX_CHAIN:
                return TOO_DEEP
            words = simple.words[at + 1 :]
            if pattern := _find_special(name, words) or next((p.text for p in self._commands if p.fits(name, rest)), ""):
                return pattern
            for text in _list_programs(name, words):
                if pattern := self._find_blocked(read(text), depth + 1):
                    return pattern
        return ""


def _has_made(pipeline: list[Simple]) -> bool:
    """Whether something that is run is made of a variable: not where one is a mere argument, as in `mkdir $NAME`."""
    is_said = any(name in SHELLS for simple in pipeline for name, _ in _list_commands(simple.words))
    return any(_runs_made(simple) or is_said and (simple.made or simple.texts) for simple in pipeline)


def _runs_made(simple: Simple) -> bool:
    names = list(_list_commands(simple.words))
    if not simple.made or not names:
        return bool(simple.made)
    name, at = names[-1]
    return simple.made[0] <= at or name in RUNNERS or name in TAKING


def _find_special(name: str, words: list[str]) -> str:
    """The built-in patterns that are more than a name and words."""
    if (
        name == "rm"
        and _has_option(words, "rR", "--recursive")
        and any(_is_root(word) for word in words if not word.startswith("-"))
    ):
        return ROOT_GONE
    if name == "chmod" and MODE.fullmatch(next((word for word in words if not word.startswith("-")), "")):
        return SET_ID
    if name in ("dd", "tee", "cp", "mv", "shred", "wipefs") and any(DISK.match(word) for word in words):
        return TO_DISK
    return ""


def _has_option(words: list[str], letters: str, long: str) -> bool:
    short = any(word.startswith("-") and not word.startswith("--") and any(c in word for c in letters) for word in words)
    return short or any(len(word) > 3 and long.startswith(word) for word in words)


def _is_root(word: str) -> bool:
    return word.startswith("/") and normpath(word).lstrip("/") in ("", "*", "{*,.*}", ".*")


def _list_commands(words: list[str]) -> Iterator[tuple[str, int]]:
    """The names of what a simple command runs, and where they stand: itself, then what it runs in turn."""
    at = _find_first(words, 0)
    while at < len(words):
        name = _command_name(words[at])
        yield name, at
        if name == "command" and words[at + 1 : at + 2] in (["-v"], ["-V"]):
            return  # only says where it is
        if name in ("find", "fd", "fdfind"):
            at = next((i + 1 for i in range(at + 1, len(words)) if words[i] in STARTERS), len(words))
        elif name in RUNNERS:
            at = _skip_options(words, at + 1, *RUNNERS[name])
        elif name in KEYWORDS:
            at = _find_first(words, at + 1)
        else:
            return


def _find_first(words: list[str], at: int) -> int:
    """Where the command stands: after keywords and assignments; the end where there is none."""
    while at < len(words):
        if words[at] == "function":
            at += 2  # its name is no command, what stands in it is
            continue
        if words[at] in NO_COMMAND:
            return len(words)
        if words[at] not in KEYWORDS and not ASSIGNMENT.fullmatch(words[at]) and words[at]:
            return at
        at += 1
    return at


def _skip_options(words: list[str], at: int, letters: str, own: int) -> int:
    """Where the command that a runner runs stands: after its options, their values, and its own words."""
    while at < len(words):
        word = words[at]
        if word.startswith("-") and word != "-":
            is_short = not word.startswith("--")
            at += 2 if is_short and len(word) == 2 and word[1] in letters else 1
        elif own > 0 or ASSIGNMENT.fullmatch(word) or not word or word == "{}":
            own -= 1
            at += 1
        else:
            return at
    return at


def _list_programs(name: str, words: list[str]) -> Iterator[str]:
    """Texts among the arguments that are programs: of shells, of interpreters and of `eval`."""
    if name == "eval":
        yield " ".join(words)
    elif name in SHELLS or name in ("su", "script", "watch", "parallel", "xargs", "trap"):
        code = [after for word, after in zip(words, words[1:], strict=False) if word.startswith("-") and word.endswith("c")]
        yield from dict.fromkeys([*code, *(word for word in words if any(sign in word for sign in " ;|&\n"))])
    elif _family_of(name) in INTERPRETERS:
        for word in filter(RUNNING.search, words):  # else what stands in quotes is a text
            yield from (found[1] or found[2] or "" for found in LITERAL.finditer(word))
    elif name == "alias":
        yield from (found[1] for word in words if (found := ASSIGNMENT.fullmatch(word)))


def _command_name(word: str) -> str:
    """The name of a command by its path, in small letters: `/usr/bin/Sudo` is `sudo`; `{sudo,ls}` runs `sudo`."""
    if word.startswith("{") and "," in word:
        word = word[1:].partition(",")[0]
    return re.split(r"[/\\]", word.strip().rstrip("/"))[-1].lower().removesuffix(".exe")


def _family_of(name: str) -> str:
    return re.sub(r"[\d.]+$", "", name)


def _normalize_blanks(text: str) -> str:
    """Small letters, and one space wherever there is white space."""
    return " ".join(text.lower().split())


def _close_operators(text: str) -> str:
    """Without the spaces around operators."""
    return re.sub(r"\s*([|&;<>(){}])\s*", r"\1", text)


def _is_fork_bomb(command: str) -> bool:
    """Whether something starts itself twice, without end."""
    for found in (*FUNCTION.finditer(command), *FUNCTION_WORD.finditer(command)):
        name = re.escape(found[1])
        itself = re.findall(rf"(?:^|[\s;|&{{]){name}(?=$|[\s;|&}}])", found[2])
        if itself and ("|" in found[2] or "&" in found[2]):
            return True
    return bool(FORKING.search(command) or SELF.search(command))
