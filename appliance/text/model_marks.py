"""The marks that models write around what is not for a person: thoughts, ends of an answer, calls, results, turns.

One table for streams, local models and the parser of answers. Bars may be wide ones, as DeepSeek writes them. Marks of thoughts
are read in any letters and with attributes.
What a model calls a thought is taken for one wherever it stands outside code. An element of no known name that stands before
the answer, holds sentences and is closed is one too, whatever it is called: `AnswerStart`. Knows no tools.
"""

import re
from collections.abc import Callable
from enum import StrEnum

THOUGHT_NAMES = (
    "think thinking thought thoughts reasoning reflection analysis scratchpad seed:think antthinking inner_monologue "
    "chain_of_thought thought_process thinking_process reasoning_process"
).split()
# Thoughts between marks of another form: what opens them, what closes them.
THOUGHT_PAIRS = {"[think]": "[/think]", "◁think▷": "◁/think▷", "<|start_thinking|>": "<|end_thinking|>"}
# Thoughts in a channel, as Gemma 4 and gpt-oss write them: what opens it, what closes it; and what opens the channels for a person.
THOUGHT_CHANNELS = {"<|channel>thought": "<channel|>", "<|channel|>analysis<|message|>": "<|end|>"}
MESSAGE_OPEN, MESSAGE_END = "<|start|>assistant", "<|end|>"
SPOKEN = tuple(f"{start}<|channel|>{name}<|message|>" for start in ("", MESSAGE_OPEN) for name in ("final", "commentary"))
NAMES = "|".join(THOUGHT_NAMES)
OPENED = r"<(?:{names})(?:\s[^<>\n]{{0,100}})?>|{pairs}".format(names=NAMES, pairs="|".join(map(re.escape, THOUGHT_PAIRS)))
CLOSED = r"</(?:{names})\s?>|{pairs}".format(names=NAMES, pairs="|".join(map(re.escape, THOUGHT_PAIRS.values())))
THOUGHT_OPEN = re.compile(OPENED, re.IGNORECASE)
THOUGHT_CLOSE = re.compile(CLOSED, re.IGNORECASE)
OPENS = (*(f"<{name}>" for name in THOUGHT_NAMES), *THOUGHT_PAIRS)  # in small letters, as are the next
CLOSES = (*(f"</{name}>" for name in THOUGHT_NAMES), *THOUGHT_PAIRS.values())
BEGUN = re.compile(rf"<(?:{NAMES})\s[^<>\n]{{0,100}}\Z", re.IGNORECASE)

# Behind these nothing belongs to the answer any more: what a model writes there is the next turn of a made-up conversation.
ENDS = (
    "</s> <end_of_turn> <turn|> <eos> <|im_end|> <|eot_id|> <|endoftext|> <|end_of_text|> <|end_of_turn|> <|end▁of▁sentence|>"
).split()
# Marks that say nothing to a person.
NOISE = (
    "</tool_call> <tool_call|> <|/tool_call|> <|tool_call_end|> </tool_use> </tool_calls> </function_calls> </function> </invoke> "
    "</function_call> </functioncall> <end_function_call> "
    "<co> </minimax:tool_call> </seed:tool_call> <|tool▁calls▁end|> <|tool▁call▁end|> <|tool_calls_section_end|> "
    "</toolcall> </TOOLCALL> [END_TOOL_REQUEST] [/TOOL_CALL] <|START_RESPONSE|> <|END_RESPONSE|> <|END_ACTION|> <|action_end|> "
    "</|DSML|function_calls> </|DSML|invoke> <channel|> <|message|> <|eom_id|> <|end|> <|call|> <|return|> <|begin▁of▁sentence|>"
).split()
# What begins a call of one of the formats that models were trained on, and what closes it.
CALLS = {
    "<tool_call>": "</tool_call>", "<|tool_call>": "<tool_call|>", "<|tool_call|>": "<|/tool_call|>",
    "<|tool_call_start|>": "<|tool_call_end|>", "<tool_use>": "</tool_use>", "<tool_calls>": "</tool_calls>",
    "<function_calls>": "</function_calls>", "<minimax:tool_call>": "</minimax:tool_call>",
    "<seed:tool_call>": "</seed:tool_call>", "<|DSML|function_calls>": "</|DSML|function_calls>",
    "<|tool▁calls▁begin|>": "<|tool▁calls▁end|>", "<|tool▁call▁begin|>": "<|tool▁call▁end|>",
    "<|tool_calls_section_begin|>": "<|tool_calls_section_end|>", "<|tool_call_begin|>": "<|tool_call_end|>",
    "<function_call>": "</function_call>", "<functioncall>": "</functioncall>", "<start_function_call>": "<end_function_call>",
    "<TOOLCALL>": "</TOOLCALL>", "<toolcall>": "</toolcall>", "<call>": "</call>", "[TOOL_REQUEST]": "[END_TOOL_REQUEST]",
    "[TOOL_CALL]": "[/TOOL_CALL]", "<|START_ACTION|>": "<|END_ACTION|>", "<|action_start|>": "<|action_end|>",
    "<function=": "</function>", "<function name=": "</function>", "<invoke ": "</invoke>", "<|python_tag|>": "<|eom_id|>",
}  # fmt: skip
CHANNELS = ("<|channel|>", "<|channel>", "<|start|>")
# What a program answered to a call, which only a program can say, and what closes it.
RESULTS = {
    **{f"<{name}>": f"</{name}>" for name in ("tool_response", "tool_result", "tool_results", "tool_output")},
    **{f"<{name}>": f"</{name}>" for name in ("function_results", "function_response")},
    "<|tool_response>": "<tool_response|>", "<|tool▁outputs▁begin|>": "<|tool▁outputs▁end|>",
    "<|tool▁output▁begin|>": "<|tool▁output▁end|>", "[TOOL_RESULTS]": "[/TOOL_RESULTS]",
}  # fmt: skip
# What begins somebody's turn: with a role behind it, or as a mark of the role's own.
TURNS = ("<|im_start|>", "<start_of_turn>", "<|turn>", "<|start_header_id|>", "<|start_of_role|>")
OWN_TURNS = ("<|assistant|>", "<|Assistant|>", "[/INST]")
OTHERS_TURNS = ("<|user|>", "<|User|>", "<|system|>", "<|tool|>", "<|observation|>", "<|ipython|>", "[INST]")
OWN_ROLE = r"(?:assistant|model)\b"
ROLE = re.compile(
    rf"(?:(?P<own>{OWN_ROLE})|(?P<other>(?:user|system|developer|human|tool|function|ipython|observation|environment)\b))?"
    r"(?:<\|end_header_id\|>|<\|end_of_role\|>)?\n?"
)


class MarkKind(StrEnum):
    """What a mark means."""

    THOUGHT = "thought"
    THOUGHT_END = "thought_end"
    END = "end"
    CALL = "call"
    CHANNEL = "channel"
    RESULT = "result"
    TURN = "turn"
    NOISE = "noise"


KINDS = {
    **dict.fromkeys(ENDS, MarkKind.END), **dict.fromkeys(NOISE, MarkKind.NOISE),
    **dict.fromkeys(CALLS, MarkKind.CALL), **dict.fromkeys(CHANNELS, MarkKind.CHANNEL),
    **dict.fromkeys(RESULTS, MarkKind.RESULT), **dict.fromkeys((*TURNS, *OWN_TURNS, *OTHERS_TURNS), MarkKind.TURN),
}  # fmt: skip
BAR = "[|\uff5c]"
PLAIN = "|".join(re.escape(mark) for mark in KINDS).replace("<invoke\\ ", r"<invoke(?=\s)").replace(r"\|", BAR)
CITED = r"</co(?:: ?[\d:,\[\] ]{1,80})?>"  # the end of what Command R took from a result
MARK = re.compile(rf"{PLAIN}|{CITED}|(?i:{OPENED}|{CLOSED})")
# What an unfinished end of a text may become: every mark, in small letters.
BEGUN_MARKS = "<(?=[A-Za-z/|\uff5c])|\\[(?=/?(?i:think|inst|tool_r|tool_call\\]|end_tool))|◁"
OWN_TURN = re.compile(
    rf"(?:{'|'.join(map(re.escape, TURNS))})\s*{OWN_ROLE}|{'|'.join(map(re.escape, OWN_TURNS))}".replace(r"\|", BAR)
)
# Where the answer of a model that only talks is over.
OVER = re.compile("|".join(map(re.escape, (*ENDS, *TURNS, *OWN_TURNS, *OTHERS_TURNS))).replace(r"\|", BAR))
STARTS = (*OPENS, *CLOSES, *(form.lower() for mark in KINDS for form in {mark, mark.replace("|", "\uff5c")}))


def kind_of(mark: str) -> MarkKind:
    """The kind of a text that `MARK` matched."""
    is_cited = re.fullmatch(CITED, mark) is not None
    known = KINDS.get(mark.replace("\uff5c", "|")) or (MarkKind.CALL if mark == "<invoke" else MarkKind.NOISE if is_cited else None)
    if known is not None:
        return known
    return MarkKind.THOUGHT_END if THOUGHT_CLOSE.fullmatch(mark) else MarkKind.THOUGHT


def closing(mark: str) -> str:
    """What ends the thoughts that a mark opened, in small letters."""
    if mark in THOUGHT_CHANNELS:
        return THOUGHT_CHANNELS[mark]
    name = re.match(r"<([\w:.-]+)", mark)
    return f"</{name[1].lower()}>" if name else THOUGHT_PAIRS[mark.lower()]


def may_become_thought(begun: str) -> bool:
    """Whether a text is the beginning of a mark that opens thoughts, and not yet a whole one."""
    small = begun.lower()
    return any(mark.startswith(small) and mark != small for mark in OPENS) or BEGUN.fullmatch(begun) is not None


def begun_channel(text: str) -> tuple[str, int] | None:
    """The channel of thoughts that a text begins with, "" for none, and where what it holds begins; None while that is not known.

    Headers of what is for a person are passed over.
    """
    spoken = next((mark for mark in SPOKEN if text.startswith(mark)), "")
    if spoken:
        return "", len(spoken)
    rest = text.removeprefix(MESSAGE_OPEN)
    opened = next((mark for mark in THOUGHT_CHANNELS if rest.startswith(mark)), "")
    if not opened and (any(mark.startswith(text) for mark in SPOKEN) or any(mark.startswith(rest) for mark in THOUGHT_CHANNELS)):
        return None
    return opened, len(text) - len(rest) + len(opened)


def without_thought_marks(text: str) -> str:
    """A text without the marks around thoughts."""
    return THOUGHT_CLOSE.sub("", THOUGHT_OPEN.sub("", text))


def is_of_thoughts(text: str) -> bool:
    """Whether a text is a mark that opens or closes thoughts, and nothing else."""
    return bool(THOUGHT_OPEN.fullmatch(text) or THOUGHT_CLOSE.fullmatch(text))


# -- elements in front of an answer -------------------------------------------------------------------

ANSWER_NAMES = ("answer", "final_answer", "final", "response", "final_response", "output", "reply")
# Elements of pages: at the head of an answer they are what a person asked for.
PAGE_ELEMENTS = frozenset(
    "a abbr acronym address applet area article aside audio b base bdi bdo big blink blockquote body br button canvas "
    "caption center cite code col colgroup data datalist dd del details dfn dialog dir div dl dt em embed fieldset "
    "figcaption figure font footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html i iframe img input ins "
    "kbd label legend li link main map mark marquee math menu meta meter nav noscript object ol optgroup option p param "
    "picture pre progress q rp rt ruby s samp script search section select slot small source span strike strong style sub "
    "summary sup svg table tbody td template textarea tfoot th thead time title tr track tt u ul var video wbr xmp xml".split()
)
BLOCK = re.compile(r"<([A-Za-z][\w.:-]{1,39})>")
BLOCK_BEGUN = re.compile(r"<?\Z|<[A-Za-z][\w.:-]{0,39}\Z")
ELEMENT = re.compile(r"</?[A-Za-z][^<>\n]{0,200}>|<[!?]")
SENTENCE_END = re.compile(r"[.!?:。！？…](?=\s|\Z)")
BLANKS = re.compile(r"\s*+")
# Thoughts and answer of gpt-oss from a server that has left out the marks around the names of the channels.
STRIPPED_THOUGHTS = re.compile(r"""\s*analysis(?=[A-Z"']).*?assistant(?:final|(?=commentary to=|analysis to=))""", re.DOTALL)
STRIPPED_BEGUN = re.compile(rf"""\s*(?:{"|".join("analysis"[:end] for end in range(1, 9))})\Z|\s*analysis(?=[A-Z"'])""")
LEAST_CHARS = 16  # of a block in front of an answer: less is data


def answer_of(text: str, *, is_whole: bool, is_tool: Callable[[str], bool] = lambda name: False) -> str | None:
    """A text without the thoughts and blocks in front of its answer; None while more of it has to come before that is known.

    A block is an element without attributes that is neither of pages nor a tool, with sentences and no element in it: what is
    data or markup, which a person may have asked for, is the answer. An answer that itself is the last block loses its marks.
    """
    if (bared := STRIPPED_THOUGHTS.match(text)) or (not is_whole and STRIPPED_BEGUN.match(text)):
        return text[bared.end() :] if bared else None
    at = 0
    while True:
        at = BLANKS.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing as well
        opened = THOUGHT_OPEN.match(text, at) or BLOCK.match(text, at)
        if opened is None:
            is_begun = BLOCK_BEGUN.match(text, at) is not None or may_become_thought(text[at:])
            return None if is_begun and not is_whole else text[at:]
        is_thought = THOUGHT_OPEN.fullmatch(opened[0]) is not None
        name = "" if is_thought else opened[1].lower()
        is_answer = name in ANSWER_NAMES and not is_tool(name)
        if not is_thought and (name in PAGE_ELEMENTS or MARK.match(text, at) or is_tool(name)):
            return text[at:]
        closed = re.compile(re.escape(closing(opened[0])), re.IGNORECASE).search(text, opened.end())
        closed = closed or (THOUGHT_CLOSE.search(text, opened.end()) if is_thought else None)
        inner = text[opened.end() : closed.start() if closed else len(text)]
        if not is_thought and not is_answer and ELEMENT.search(inner):
            return text[at:]
        if closed is None:
            return (inner if is_answer else text[at:]) if is_whole else None
        is_last = BLANKS.fullmatch(text, closed.end()) is not None
        if is_last and not is_whole:
            return None
        if is_answer or (is_last and at and not is_thought):
            return inner.strip() + text[closed.end() :].rstrip()
        if is_last or not (is_thought or (len(inner.strip()) >= LEAST_CHARS and SENTENCE_END.search(inner))):
            return text[at:]
        at = closed.end()


class AnswerStart:
    """A stream of an answer without what stands in front of it, which is held back until it is known."""

    def __init__(self, is_tool: Callable[[str], bool] = lambda name: False) -> None:
        self._is_tool = is_tool
        self._held: str | None = ""

    def feed(self, text: str) -> str:
        """Take a piece; what of the answer has come."""
        if self._held is None:
            return text
        self._held += text
        found = answer_of(self._held, is_whole=False, is_tool=self._is_tool)
        self._held = None if found is not None else self._held
        return found or ""

    def finish(self) -> str:
        """What was held back and belongs to the answer, once nothing follows."""
        held, self._held = self._held, None
        return answer_of(held, is_whole=True, is_tool=self._is_tool) or "" if held else ""
