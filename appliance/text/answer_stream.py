"""What of an answer may be shown while it is still coming: certain prose at once, from a call's first sign on nothing.

Reads with the marks and names of `text.answer_parser`, which decides about the whole answer. Runs nothing.
"""

import re
from collections.abc import Collection, Iterable

from appliance.records import ToolSpec
from appliance.text import code_regions, json_calls, model_marks, tool_call_formats
from appliance.text.answer_parser import PATTERN_OF_MARKS, KnownToolNames, replace_surrogates
from appliance.text.scanner import CONTAINER, Source

FEW_TILDES = re.compile(rf"{CONTAINER}~{{1,2}}\Z")
KEPT = 64  # how much of what is decided stays, for a look back


class Showing:
    """Lets through what is certainly prose, as an answer comes in; from a call's first sign on it holds back."""

    def __init__(self, tools: Iterable[ToolSpec], others: Collection[str] = ()) -> None:
        self.said = ""
        self._names = KnownToolNames(tools, others)
        self._starts = (*self._names.starts, "<!--", *(f"<{name}" for name in code_regions.ELEMENTS))
        worded = self._names.worded.pattern
        parts = {"container": CONTAINER, "worded": worded, "marks": model_marks.BEGUN_MARKS, "tags": "(?!)", "elements": "<!--"}
        self._passing = re.compile(PATTERN_OF_MARKS.format(**parts), re.MULTILINE)
        self._start = model_marks.AnswerStart(self._names.has)
        self._text = ""
        self._base = 0  # everything before is decided
        self._shown = 0
        self._is_held = False
        self._fence = ("", "")  # the marks that opened the block that we are in, and what stands before them
        self._is_doubtful = False  # whether that block may have ended before
        self._is_named = False

    def more(self, piece: str) -> str:
        """Take a piece; the text that can be shown now."""
        self._text += self._start.feed(replace_surrogates(piece))
        if not self._shown and not self._base:
            self._text = self._text.lstrip()
        if self._is_held:
            return ""
        end = self._find_settled_end()
        new = self._text[self._shown : end]
        new = new if self.said else new.lstrip()
        self.said += new
        self._shown = max(end, self._shown) if self.said else self._shown
        cut = min(self._base, self._shown) - KEPT
        if cut > KEPT:  # what is decided is not looked at again
            self._text, self._base, self._shown = self._text[cut:], self._base - cut, self._shown - cut
        return new

    def begun_call(self) -> str:
        """The tool whose call is being written in what is held back, as soon as it is named; "" for none, and when it was told."""
        if self._is_named or self._text[self._base : self._base + 1] not in tuple("{[<`"):
            return ""
        names = "|".join(map(re.escape, sorted(self._names.all(), key=len, reverse=True))) or "(?!)"
        named = re.compile(rf"""[<"'=:({{\s]({names})["'\s>(]""", re.IGNORECASE)
        found = named.search(self._text, self._base, self._base + KEPT)
        self._is_named = found is not None
        spec = found and self._names.find(found[1])
        return spec.name if spec else ""

    def rest(self, text: str) -> str:
        """What is left to show of the text that the answer turned out to have."""
        said, at = "".join(self.said.split()), 0
        if text.startswith(self.said):
            said, at = "", len(self.said)
        for char in said:  # blanks may differ where something was taken out
            while text[at : at + 1].isspace():
                at += 1
            if text[at : at + 1] != char:
                return f"\n{text}"
            at += 1
        left = text[at:]
        return left.lstrip() if self.said[-1:].isspace() or not self.said else left

    def _find_settled_end(self) -> int:
        """The length of the text that is certainly prose."""
        text, source = self._text, Source(self._text)
        if self._fence[0] and not self._left_fence():
            return self._base if self._is_held else len(text)
        at = self._base
        while match := self._passing.search(text, at):
            passed = self._find_prose_end(match, source)
            if passed <= match.start():
                if passed < 0:
                    return self._find_settled_end()
                self._base = match.start()
                return self._base
            at = passed
        line = text.rfind("\n", 0, len(text)) + 1
        if (begun := self._names.worded_begun(text, at)) >= 0:
            self._base = begun
            return begun
        if line >= at and FEW_TILDES.match(text, line):
            self._base = line
            return line
        tail = max(text.rfind(first, at) for first in "<[◁")
        if tail >= at and any(start.startswith(text[tail:].lower()) for start in self._starts):
            self._base = tail
            return tail
        self._base = max(at, line if not text[line:].strip(" \t") else len(text))
        return len(text)

    def _left_fence(self) -> bool:
        """True once the end of the block that we are in has come for certain."""
        marks, before = self._fence
        for closed in code_regions.FENCE_END.finditer(self._text, self._base):
            if code_regions.closes(closed, marks, before) and closed.end() < len(self._text):
                self._is_doubtful |= code_regions.is_doubtful(self._text[self._base : closed.start()], marks, before)
                self._base, self._fence, self._is_held = closed.end(), ("", ""), self._is_doubtful
                return not self._is_held
        line = self._text.rfind("\n") + 1
        if line > self._base:
            self._is_doubtful |= code_regions.is_doubtful(self._text[self._base : line], marks, before)
            self._base = line
        return False

    def _find_prose_end(self, match: re.Match[str], source: Source) -> int:
        """Where the prose at a mark ends; the mark's own place to wait there, -1 when all that follows is code."""
        token, wait, text = match.group().lstrip(" \t"), match.start(), self._text
        if self._names.worded.match(text, wait):
            is_list = token == "[" and (self.said or text[self._shown : wait].strip())  # beside words it is none
            self._is_held = not is_list
            return match.end() if is_list else wait
        if token[-1] in "`~":
            marks = token[token.index(token[-1]) :]
            return self._code_passed(match.end() - len(marks), len(marks), wait, source)
        mark = model_marks.MARK.match(text, match.end() - 1 if token in ("{", "[") else wait)
        if token == "[" and self._names.worded_begun(text, wait) == wait:
            return wait
        if token in ("{", "[") and mark is None:
            return self._json_passed(match.end() - 1, wait, source)
        if self._names.element.match(text, wait):
            return code_regions.closed_end(source, wait) or wait
        rest = text[wait : wait + 60]
        if any(start.startswith(rest.lower()) for start in self._starts) or model_marks.may_become_thought(text[wait:]):
            return wait
        if self._names.tag is not None and self._names.tag.match(text, wait):
            self._is_held = True
            return wait
        if mark is not None and model_marks.kind_of(mark[0]) is model_marks.MarkKind.THOUGHT:
            thought = tool_call_formats.marked(source, mark.start())
            if thought is None or thought.is_prose or text[self._shown : wait].strip():  # what stands before it is shown first
                return wait
            self._shown = thought.end
            return thought.end
        if mark is not None or token == tool_call_formats.LIST_MARK:
            self._is_held = True
            return wait
        return match.end()

    def _code_passed(self, at: int, length: int, wait: int, source: Source) -> int:
        text = self._text
        if at + length == len(text):
            return wait
        block = code_regions.fence(source, at) if length >= 3 else None
        if block is None:
            end = code_regions.span_end(source, at, length)
            is_open = end == at + length and source.paragraph_end(at) == len(text)
            is_unsure = length >= 3 and source.line_end(end) == len(text)  # what closes it may turn out to open a block
            return wait if is_open or is_unsure or end == len(text) else end  # marks at the end may become more
        if block.start == len(text) and not text.endswith("\n"):
            return wait
        if block.stands == "words":  # it ends wherever marks come next
            self._is_held = True
            return wait
        first = text[block.start : block.stop].lstrip()[:1]
        is_alone = not self.said and not text[self._shown : at].strip()
        is_json = block.label in tool_call_formats.PLAIN and first in ("", "{", "[") and is_alone
        if block.stands == "line" and (block.label in tool_call_formats.LIVE or is_json):
            following = text[block.end :].lstrip()[:1]
            is_open = not block.is_closed or block.end == len(text) or (is_json and following in ("", "`", "~", "<"))
            if is_open or (block.is_sure and tool_call_formats.fenced(source, block, is_alone) is not None):
                return wait
        if block.is_closed and block.end < len(text) and block.is_sure:
            return block.end
        self._base, self._fence = block.start, (text[at] * length, text[text.rfind("\n", 0, at) + 1 : at])
        self._is_doubtful = False
        return -1

    def _json_passed(self, at: int, wait: int, source: Source) -> int:
        text, opened = self._text, json_calls.OPENED.match(self._text, at)
        inner = opened.end() if opened else at
        if inner == len(text):
            return wait
        is_broken = json_calls.BROKEN_START.match(text, at) or text[inner:] in ("n", "na", "nam", "name")
        if text[inner] != '"' and not is_broken and not 'tool_calls"'.startswith(text[inner:]):
            return wait if any(start.startswith(text[at:].lower()) for start in self._starts) else at + 1
        end = json_calls.data_end(source, at) if text.rstrip().endswith(("}", "]")) else 0
        return end or wait
