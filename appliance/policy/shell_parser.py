"""What a shell would run: a command line as pipelines of simple commands, with quotes, escapes and nesting resolved.

Pure, and no shell: an expansion is taken as empty or as its own default, and nothing is run. What stands in `$( )`,
backticks or `<( )` comes out as commands of its own. It never fails; what no shell would accept comes out as the words
that are there. Not promised: what a word is after the shell has replaced variables by values that are set elsewhere.
"""

import re

from msgspec import Struct, field

MAX_DEPTH = 12
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
NUMBER = re.compile(r"x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})")
DEFAULT = re.compile(r"[!#]?\w*(?:\[[^]]*\])?(?::?[-=+?](.*))?", re.DOTALL)


class Simple(Struct):
    """One command: its words as the shell hands them over, where its output goes, and the text it is fed."""

    words: list[str] = field(default_factory=list)
    targets: list[tuple[str, str]] = field(default_factory=list)  # operator, file
    texts: list[str] = field(default_factory=list)  # here-documents and here-strings
    made: list[int] = field(default_factory=list)  # which words have an expansion in them


class Read(Struct):
    """Everything a command line runs: pipelines in order, those inside of others after them."""

    pipelines: list[list[Simple]] = field(default_factory=list)
    is_too_deep: bool = False


def read(text: str, depth: int = 0) -> Read:
    """The commands of a line, or of several."""
    return _Reader(text, depth).all()


class _Reader:
    def __init__(self, text: str, depth: int) -> None:
        self._text, self._depth = text, depth
        self._at = 0
        self._read = Read()
        self._pipeline: list[Simple] = []
        self._simple = Simple()
        self._word: list[str] | None = None  # None between words
        self._is_made = False  # the word has an expansion in it
        self._operator = ""  # of a redirection whose file comes next
        self._waiting: list[tuple[str, bool, Simple]] = []  # here-documents that begin at the next line

    def all(self) -> Read:
        if self._depth > MAX_DEPTH:
            self._read.is_too_deep = True
            return self._read
        while self._at < len(self._text):
            self._read_step()
        self._end_pipeline()
        return self._read

    def _read_step(self) -> None:
        text, at = self._text, self._at
        char, pair = text[at], text[at : at + 2]
        self._at += 1
        if char == "\n":
            self._end_pipeline()
            self._take_documents()
        elif char.isspace():
            self._end_word()
        elif char == "#" and self._word is None:
            end = text.find("\n", at)
            self._at = len(text) if end < 0 else end
        elif pair in ("<(", ">("):
            self._at += 1
            self._read_nested(self._read_until(")"))
            self._add_text("")
        elif pair == "&>":
            self._read_redirect(at)
        elif char in "|;&()":
            self._end_part(char)
        elif char in "<>":
            self._read_redirect(at)
        else:
            self._read_letter(char)

    def _end_part(self, char: str) -> None:
        is_pipe = char == "|" and self._text[self._at : self._at + 1] != "|"
        self._end_simple() if is_pipe else self._end_pipeline()
        if is_pipe and self._text[self._at : self._at + 1] == "&":
            self._at += 1

    def _read_letter(self, char: str) -> None:
        """A character of a word, or what stands for some."""
        if char == "'":
            self._add_text(self._until_quote())
        elif char == '"':
            self._read_double()
        elif char == "\\":
            after = self._text[self._at : self._at + 1]
            self._at += 1
            if after != "\n":
                self._add_text(after)
        elif char == "`":
            self._read_backtick()
        elif char == "$":
            self._read_dollar(is_quoted=False)
        else:
            self._add_text(char)

    def _add_text(self, text: str) -> None:
        if self._word is None:
            self._word = []
        self._word.append(text)

    # -- quotes and expansions ---------------------------------------------------------------------

    def _until_quote(self) -> str:
        end = self._text.find("'", self._at)
        end = len(self._text) if end < 0 else end
        found = self._text[self._at : end]
        self._at = end + 1
        return found

    def _read_double(self) -> None:
        self._add_text("")
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == '"':
                return
            if char == "\\" and self._text[self._at : self._at + 1] in ("$", "`", '"', "\\", "\n"):
                after = self._text[self._at]
                self._add_text("" if after == "\n" else after)
                self._at += 1
            elif char == "`":
                self._read_backtick()
            elif char == "$":
                self._read_dollar(is_quoted=True)
            else:
                self._add_text(char)

    def _read_backtick(self) -> None:
        inner: list[str] = []
        while self._at < len(self._text) and self._text[self._at] != "`":
            if self._text[self._at] == "\\" and self._text[self._at + 1 : self._at + 2] in ("`", "\\", "$"):
                self._at += 1
            inner.append(self._text[self._at : self._at + 1])
            self._at += 1
        self._at += 1
        self._read_nested("".join(inner))
        self._add_expanded("")

    def _read_dollar(self, *, is_quoted: bool) -> None:
        text, at = self._text, self._at
        if text.startswith("((", at) and (end := text.find("))", at)) >= 0:
            self._at = end + 2
            self._add_expanded("")
        elif text.startswith("(", at):
            self._at += 1
            self._read_nested(self._read_until(")"))
            self._add_expanded("")
        elif text.startswith("{", at):
            self._at += 1
            found = DEFAULT.match(inner := self._read_until("}"))
            self._nested_in(inner)
            self._add_expanded((found[1] if found else None) or "")
        elif text.startswith("'", at) and not is_quoted:
            self._at += 1
            self._add_text(self._read_ansi())
        elif name := re.compile(r"\w+|[@*?$!#-]").match(text, at):
            self._at = name.end()
            self._add_expanded("")
        else:
            self._add_text("" if text.startswith('"', at) and not is_quoted else "$")

    def _add_expanded(self, text: str) -> None:
        self._is_made = True
        self._add_text(text)

    def _read_ansi(self) -> str:
        r"""The text of $'...', with escapes such as \x73."""
        found: list[str] = []
        while self._at < len(self._text) and self._text[self._at] != "'":
            char = self._text[self._at]
            self._at += 1
            if char != "\\":
                found.append(char)
            elif number := NUMBER.match(self._text, self._at):
                digits = number[1] or number[2] or number[3]
                code = int(digits, 16) if digits else int(number[4], 8)
                found.append(chr(code) if code < 0x110000 else "?")
                self._at = number.end()
            else:
                after = self._text[self._at : self._at + 1]
                found.append(ESCAPES.get(after, after))
                self._at += 1
        self._at += 1
        return "".join(found)

    def _read_until(self, closing: str) -> str:
        """The text up to the bracket that closes, which is passed."""
        opening, begin, open_count = {")": "(", "}": "{"}[closing], self._at, 1
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == "\\":
                self._at += 1
            elif char == "'":
                self._until_quote()
            elif char == '"':
                self._skip_double()
            elif char in (opening, closing):
                open_count += 1 if char == opening else -1
                if open_count == 0:
                    return self._text[begin : self._at - 1]
        return self._text[begin:]

    def _skip_double(self) -> None:
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 2 if char == "\\" else 1
            if char == '"':
                return

    def _read_nested(self, text: str) -> None:
        inner = read(text, self._depth + 1)
        self._read.pipelines += inner.pipelines
        self._read.is_too_deep |= inner.is_too_deep

    def _nested_in(self, text: str) -> None:
        """Commands within the braces of an expansion."""
        if "$(" in text or "`" in text:
            self._read_nested(text.partition("$(")[2].rpartition(")")[0] if "$(" in text else text.split("`")[1])

    # -- ends --------------------------------------------------------------------------------------

    def _read_redirect(self, at: int) -> None:
        found = re.compile(r"&?>>?[|&]?|<<<|<<-?|<[>&]?").match(self._text, at)
        assert found is not None
        if self._word is not None and "".join(self._word).isdigit():
            self._word = None  # the number of a descriptor
        self._end_word()
        self._at, self._operator = found.end(), found[0]

    def _end_word(self) -> None:
        if self._word is None:
            return
        word, self._word = "".join(self._word), None
        operator, self._operator = self._operator, ""
        is_made, self._is_made = self._is_made, False
        if operator in ("<<", "<<-"):
            self._waiting.append((word, operator == "<<-", self._simple))
        elif operator == "<<<":
            self._simple.texts.append(word)
        elif operator:
            self._simple.targets.append((operator, word))
        else:
            self._simple.made += [len(self._simple.words)] if is_made else []
            self._simple.words.append(word)

    def _end_simple(self) -> None:
        self._end_word()
        if self._simple.words or self._simple.targets or self._simple.texts:
            self._pipeline.append(self._simple)
        elif self._waiting and self._waiting[-1][2] is self._simple:
            self._pipeline.append(self._simple)
        self._simple, self._operator = Simple(), ""

    def _end_pipeline(self) -> None:
        self._end_simple()
        if self._pipeline:
            self._read.pipelines.append(self._pipeline)
        self._pipeline = []

    def _take_documents(self) -> None:
        waiting, self._waiting = self._waiting, []
        for mark, is_indented, simple in waiting:
            lines: list[str] = []
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = end + 1
                if (line.lstrip("\t") if is_indented else line) == mark:
                    break
                lines.append(line)
            simple.texts.append("\n".join(lines))
