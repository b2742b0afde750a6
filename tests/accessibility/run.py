"""Judges every view of the web page by the rules of axe-core, in light and dark, wide and narrow; by hand: make accessibility.

Prints what it finds; exit code 1 for anything serious or critical. Leaves a picture of each view in build/web-page/ for people to
look at. Needs npm and network the first time, chromium and chromedriver.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support"), str(ROOT / "tests/whole")]

from browser import ENTER, Browser, browsing  # noqa: E402
from process import boxed, script, until  # noqa: E402
from test_web_page import PLAY, free_port  # noqa: E402

HERE = Path(__file__).parent
PICTURES = ROOT / "build/web-page"
BAD = ("serious", "critical")
VIEWS = ("Chat", "Tasks", "Approvals", "Settings")
JUDGE = """
const done = arguments[arguments.length - 1];
axe.run(document, { resultTypes: ["violations"] }).then(found => done(found.violations.map(
  one => [one.impact, one.id, one.help, one.nodes.map(node => node.html.slice(0, 120))])));
"""


def fetch_rules() -> str:
    """The script with the rules, from the cache or from the registry."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "owlbox/accessibility"
    folder.mkdir(parents=True, exist_ok=True)
    found = folder / "node_modules/axe-core/axe.min.js"
    if not found.exists():
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        quick = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(["npm", "ci", *quick], cwd=folder, check=True, timeout=180)
    return found.read_text("utf-8")


def judge(browser: Browser, rules: str, name: str) -> list[Any]:
    """What is wrong with what is shown now; a picture of it is kept."""
    browser.screenshot(PICTURES / f"{name}.png")
    if not browser.run("return !!window.axe"):
        # Put in by the driver, which the Content-Security-Policy of the page does not bind.
        browser.run(rules)
    return list(browser.command("POST", "/execute/async", {"script": JUDGE, "args": []}))


def visit(browser: Browser, rules: str, invite: str) -> dict[str, list[Any]]:
    """Every view, in each of the two colours and sizes."""
    found: dict[str, list[Any]] = {}
    browser.open(invite.partition("#")[0])
    browser.shows("Log in")
    found["login"] = judge(browser, rules, "login")
    browser.open(invite)
    browser.shows("New conversation")
    for text, answer in (("tell me of owls", "a link"), ("ask me", "Which")):
        browser.press("New conversation")
        browser.type("#text", text + ENTER)
        browser.shows(answer, css="#log")
    browser.press("Tasks")
    browser.type("#task-name", "water the peas" + ENTER)
    browser.shows("1. water the peas")
    for colours in ("light", "dark"):
        browser.press("Settings")
        browser.click(f"[name=theme][value={colours}]")
        for width, height in ((1200, 800), (390, 780)):
            browser.resize(width, height)
            for view in VIEWS:
                browser.press(view)
                until(lambda: not browser.run("return document.getAnimations().length"), "it is still", 10)
                found[f"{view} {colours} {width}"] = judge(browser, rules, f"{view.lower()}-{colours}-{width}")
            browser.press("Chat")
            browser.run("document.querySelector('#threads li:last-child button').click()")
            browser.shows("a link", css="#log")
            found[f"answer {colours} {width}"] = judge(browser, rules, f"answer-{colours}-{width}")
            browser.run("document.querySelector('#threads button').click()")
            browser.shows("Which", css="#log")
            if width < 1000:
                browser.press("Conversations")
            browser.type("#find", "OWLS")
            browser.shows("Tawny", css="#threads")
            found[f"search {colours} {width}"] = judge(browser, rules, f"search-{colours}-{width}")
            browser.run("const one = document.querySelector('#find'); one.value = ''; one.dispatchEvent(new Event('input'))")
            browser.run("document.querySelector('#text').focus(); document.querySelector('#side').classList.remove('is-open')")
            browser.shows("ask me", css="#threads") if width > 1000 else None
    return found


def main() -> int:
    """The exit code."""
    rules = fetch_rules()
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as runtime:
        with boxed(Path(place), Path(runtime)) as box, browsing() as browser:
            box.environ |= {"OWLBOX__CHANNELS__WEB__ENABLED": "true", "OWLBOX__CHANNELS__WEB__PORT": str(free_port())}
            script(box, PLAY)
            core = box.serve()
            invite = core.call("login.invite", person="ann")["address"]
            core.call("group.change", group="birds", add=["ann"])
            until(lambda: "web page at" in (box.home.logs / "web/output.log").read_text(), "the page is served")
            found = visit(browser, rules, invite)
    bad = 0
    for view, findings in found.items():
        for impact, rule, words, nodes in findings:
            bad += impact in BAD
            print(f"{view}: {impact}: {rule}: {words}", *(f"    {node}" for node in nodes[:3]), sep="\n")
    print(f"{len(found)} views, {sum(map(len, found.values()))} findings, {bad} of them serious; pictures in {PICTURES}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
