"""The prompt documents in box/: which there are, in which order the model reads them, what ships.

Reads files, writes them only when a home is made. A document of headings and comments alone is left
out, so an unused one costs nothing. Knows nothing about entries or about sizes.
"""

from importlib import resources
from pathlib import Path

from appliance import markdown
from appliance.errors import BadInput
from appliance.records import Part

# In the order of docs/requirements/overlaps.md section 9; BOOTSTRAP comes after the tools.
ALWAYS = ("SOUL", "IDENTITY", "USER", "AGENTS", "ENVIRONMENT", "BELIEFS", "GOALS", "CAPABILITIES", "MEMORY")
LAST = "BOOTSTRAP"
SHIPPED = (*ALWAYS, "HEARTBEAT", LAST)
MAX_CHARS = 20_000


def shipped(name: str) -> str:
    """The text of a document as it ships."""
    return (resources.files("appliance") / "box" / f"{name}.md").read_text(encoding="utf-8")


def install(box: Path) -> list[Path]:
    """Write the shipped documents that are missing; never touches one that is there."""
    box.mkdir(parents=True, exist_ok=True)
    made = []
    for name in SHIPPED:
        path = box / f"{name}.md"
        if not path.exists():
            path.write_text(shipped(name), encoding="utf-8")
            made.append(path)
    return made


def documents(box: Path) -> tuple[list[Part], list[str]]:
    """The documents for the prompt, in order, and what is wrong with those that could not be read."""
    parts, problems = [], []
    for name in (*ALWAYS, LAST):
        try:
            text = _read(box / f"{name}.md")
        except BadInput as error:
            problems.append(f"{name}.md: {error.message}")
            continue
        if text:
            parts.append(Part(name, text))
    return parts, problems


def _read(path: Path) -> str:
    """The document's visible text, or "" when there is nothing to say; BadInput when it is unreadable."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            raw = file.read(MAX_CHARS + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}") from None
    if len(raw) > MAX_CHARS:
        raw = raw[:MAX_CHARS] + f"\n[cut: only the first {MAX_CHARS} characters of this document are read]"
    _, body = markdown.split(raw)
    return markdown.visible(body) if markdown.has_text(body) else ""
