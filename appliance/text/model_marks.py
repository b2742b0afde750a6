"""The marks that models write around what is not for a person: thoughts, ends of an answer, calls, results, turns.

One table for streams, local models and the parser of answers. Bars may be wide ones, as DeepSeek writes them. Marks of thoughts
are read in any letters and with attributes.
What a model calls a thought is taken for one wherever it stands outside code. Knows no tools.
"""

import re
from enum import StrEnum

THOUGHT_NAMES = ("think", "thinking", "thought", "reasoning", "seed:think")
# Thoughts between marks of another form: what opens them, what closes them.
THOUGHT_PAIRS = {"[think]": "[/think]", "◁think▷": "◁/think▷"}
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
    "</minimax:tool_call> </seed:tool_call> <|tool▁calls▁end|> <|tool▁call▁end|> <|tool_calls_section_end|> "
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
    "<function=": "</function>", "<invoke ": "</invoke>", "<|python_tag|>": "<|eom_id|>",
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
MARK = re.compile(rf"{PLAIN}|(?i:{OPENED}|{CLOSED})")
# What an unfinished end of a text may become: every mark, in small letters.
BEGUN_MARKS = "<(?=[A-Za-z/|\uff5c])|\\[(?=/?(?i:think|inst|tool_r))|◁"
OWN_TURN = re.compile(
    rf"(?:{'|'.join(map(re.escape, TURNS))})\s*{OWN_ROLE}|{'|'.join(map(re.escape, OWN_TURNS))}".replace(r"\|", BAR)
)
STARTS = (*OPENS, *CLOSES, *(form.lower() for mark in KINDS for form in {mark, mark.replace("|", "\uff5c")}))


def kind_of(mark: str) -> MarkKind:
    """The kind of a text that `MARK` matched."""
    known = KINDS.get(mark.replace("\uff5c", "|")) or (MarkKind.CALL if mark == "<invoke" else None)
    if known is not None:
        return known
    return MarkKind.THOUGHT_END if THOUGHT_CLOSE.fullmatch(mark) else MarkKind.THOUGHT


def closing(mark: str) -> str:
    """What ends the thoughts that a mark opened, in small letters."""
    name = re.match(r"<([\w:]+)", mark)
    return f"</{name[1].lower()}>" if name else THOUGHT_PAIRS[mark.lower()]


def may_become_thought(begun: str) -> bool:
    """Whether a text is the beginning of a mark that opens thoughts, and not yet a whole one."""
    small = begun.lower()
    return any(mark.startswith(small) and mark != small for mark in OPENS) or BEGUN.fullmatch(begun) is not None


def is_of_thoughts(text: str) -> bool:
    """Whether a text is a mark that opens or closes thoughts, and nothing else."""
    return bool(THOUGHT_OPEN.fullmatch(text) or THOUGHT_CLOSE.fullmatch(text))
