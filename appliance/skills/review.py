"""What a skill asks for and what it hides: shown to a person before it is installed or trusted.

It names what is there; it does not judge whether a skill is safe, and a clean review is no promise: text that talks a model into
something looks like any other text. What is covered: characters that are not seen, HTML comments, long encoded text,
scripts, addresses and programs that reach the network, packages, variables, programs, tools it names, being in every prompt.
"""

import re

import msgspec

from appliance.skills import front_matter
from appliance.skills.package import SkillPackage
from appliance.skills.skill_file import SCRIPTS, Skill, find_field_faults
from appliance.text.invisible import escape_invisible, find_unseen

COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
ENCODED = re.compile(r"[A-Za-z0-9+/=_-]{160,}")
ADDRESS = re.compile(r"\b(?:https?|ftp|wss?)://([^\s/\"'<>)\]}]+)", re.IGNORECASE)
NETWORK = re.compile(
    r"\b(?:curl|wget|nc|ncat|ssh|scp|rsync|ftp|telnet|requests|httpx|urllib|aiohttp|socket|fetch"
    r"|XMLHttpRequest|axios|git clone|pip install|npm (?:i|install)|npx)\b|/dev/tcp/"
)
MOST_SHOWN = 12


class ReviewFinding(msgspec.Struct, frozen=True):
    """One line of a review. `kind` is "asks" for what it needs, "hides" for what a reader does not see, "format" for faults."""

    kind: str
    text: str


def review(skill: Skill, package: SkillPackage) -> list[ReviewFinding]:
    """Everything that a person should know before, what is hidden first."""
    return [*_hidden(package), *_asked(skill, package), *_format(skill, package)]


def _hidden(package: SkillPackage) -> list[ReviewFinding]:
    found = []
    for path, file in sorted(package.files.items()):
        try:
            text = file.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            if not path.startswith(("assets/", f"{SCRIPTS}/")):
                found.append(ReviewFinding("hides", f"{path} is not text"))
            continue
        unseen = list(find_unseen(text))
        if unseen:
            line = text.count("\n", 0, unseen[0]) + 1
            around = escape_invisible(text[max(0, unseen[0] - 20) : unseen[0] + 20]).replace("\n", " ")
            found.append(ReviewFinding("hides", f"{path} line {line}: {len(unseen)} characters that are not seen: {around}"))
        if path.lower().endswith((".md", ".html", ".txt")):
            for comment in COMMENT.findall(text)[:MOST_SHOWN]:
                found.append(ReviewFinding("hides", f"{path}: a comment that is not shown: {' '.join(comment.split())[:160]}"))
        if ENCODED.search(text):
            found.append(ReviewFinding("hides", f"{path}: a long run of encoded text"))
    return found


def _asked(skill: Skill, package: SkillPackage) -> list[ReviewFinding]:
    found = []
    if skill.is_always:
        found.append(ReviewFinding("asks", f"its whole text stands in every prompt ({len(skill.body)} characters)"))
    if skill.is_reserved:
        found.append(ReviewFinding("asks", f"/{skill.name} is a command already, so it is read by name only"))
    for what, names in (("programs", skill.bins), ("variables", skill.env), ("variables for its scripts", skill.script_env)):
        if names:
            found.append(ReviewFinding("asks", f"{what}: {', '.join(names)}"))
    if skill.packages:
        found.append(ReviewFinding("asks", f"packages: {', '.join(f'{p.name} ({p.source})' for p in skill.packages)}"))
    scripts = [path for path in sorted(package.files) if path.startswith(f"{SCRIPTS}/")]
    if scripts:
        found.append(ReviewFinding("asks", f"scripts, run in the sandbox without network: {', '.join(scripts[:MOST_SHOWN])}"))
    network: dict[str, list[str]] = {}
    hosts: set[str] = set()
    for path, file in sorted(package.files.items()):
        text = file.data.decode("utf-8", "replace")
        hosts.update(host.lower() for host in ADDRESS.findall(text))
        if path in scripts and (words := sorted(set(NETWORK.findall(text)))):
            network[path] = words
    for path, words in network.items():
        found.append(ReviewFinding("asks", f"{path} reaches for the network: {', '.join(words[:6])}"))
    if hosts:
        found.append(ReviewFinding("asks", f"addresses it names: {', '.join(sorted(hosts)[:MOST_SHOWN])}"))
    elsewhere = [path for path in package.files if package.files[path].is_executable and path not in scripts]
    if elsewhere:
        found.append(
            ReviewFinding("asks", f"programs outside of scripts/, which nothing runs: {', '.join(sorted(elsewhere)[:MOST_SHOWN])}")
        )
    return found


def _format(skill: Skill, package: SkillPackage) -> list[ReviewFinding]:
    front, _, _ = front_matter.read(skill.text)
    return [ReviewFinding("format", fault) for fault in find_field_faults(front, skill.path.parent.name)]
