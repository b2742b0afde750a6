"""What fills the packet of the thread on the screen: the table of `owlbox packet size`, with a bar. Asks nobody itself."""

from collections.abc import Mapping
from typing import Any

from textual.content import Content

from appliance.tui.shown_text import Shown

BAR = 24
ROWS = 7  # of schemes; the smallest are summed up
NAME = 18


class Meter(Shown):
    """The table between talk and input; hidden until somebody wants it."""

    DEFAULT_CSS = """
    Meter { display: none; height: auto; max-height: 50%; padding: 0 1; border-top: solid $foreground 25%;
        text-wrap: nowrap; text-overflow: ellipsis; }
    Meter:ansi { border-top: solid ansi_bright_black; }
    .-short Meter { border-top: none; max-height: 3; }
    """

    def __init__(self) -> None:
        super().__init__(id="meter", markup=False)
        self.display = False

    def show(self, found: Mapping[str, Any]) -> None:
        """Draw what `run.packet` says."""
        self.update(Content("\n").join(rows(found)))


def rows(found: Mapping[str, Any]) -> list[Content]:
    """The table: used of what may be used, then the parts, the largest first."""
    table, ceiling = found["table"], int(found["ceiling"] or 0)
    used = int(table["usage"])
    of = f" of {ceiling} tokens, {_to_percent(used, ceiling)} %" if ceiling else " tokens, no limit known"
    full = min(BAR, round(BAR * used / ceiling)) if ceiling else 0
    style = "$error" if found["is_over"] else "$warning" if ceiling and used > 0.8 * ceiling else "$success"
    bar = (("█" * full, style), ("░" * (BAR - full), "dim"), "  ") if ceiling else ()
    lines = [Content.assemble(*bar, (f"{used}{of}", "bold"), (f"  {found['route']}, layout {found['layout']}", "dim"))]
    parts = [("system", "", int(table["system"]))]
    schemes = sorted(table["lines"], key=lambda one: -int(one["tokens"]))
    parts += [(str(one["scheme"]), str(one["count"]), int(one["tokens"])) for one in schemes[:ROWS]]
    if rest := schemes[ROWS:]:
        parts.append((f"{len(rest)} more", str(sum(int(one["count"]) for one in rest)), sum(int(one["tokens"]) for one in rest)))
    if table["summarized"]:
        parts.append(("summarized", str(table["summarized"]), int(table["summarized_tokens"])))
    for name, count, tokens in parts:
        share = f"{_to_percent(tokens, ceiling):>4} %" if ceiling else ""
        lines.append(Content.assemble(f"{name:<{NAME}.{NAME}}", (f"{count:>5}", "dim"), f"{tokens:>9}{share}"))
    if table["free"] is not None:
        lines.append(Content.assemble((f"{'free':<{NAME}}{'':5}{table['free']:>9}", "dim")))
    lines += [Content.assemble((str(note), "$warning")) for note in found["notes"]]
    return lines


def _to_percent(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 0
