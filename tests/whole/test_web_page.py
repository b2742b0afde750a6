"""The web page in a real Chromium, beside a real core: what a person does there, and what strangers cannot.

One core, one server and one browser for the whole file; each test begins in a conversation of its own.
"""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import browser as browsers
import pytest
from browser import ENTER, ESCAPE, TAB, Browser, browsing
from process import Box, Core, a_shared_box, script, until  # noqa: F401

pytestmark = pytest.mark.skipif(not browsers.CHROMIUM or not browsers.DRIVER, reason="no chromium with chromedriver here")

EVIL = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>[x](javascript:window.hit=1)<svg onload='window.hit=1'>"
PLAY = """
[[turns]]
match = "tell me of owls"
text = '''# Owls

**Tawny** and *eagle* owls, `hoot`.

| owl | size |
|---|---|
| tawny | 40 cm |

1. one
   - inner
2. two

```python
print("hoot")
```

<https://example.org> [a link](https://example.org/a) EVIL'''
chunk_size = 5
chunk_delay_s = 0.01
repeat = true
[[turns]]
match = "hold on"
text = "one two three four five six seven eight nine ten"
chunk_size = 4
chunk_delay_s = 0.2
[[turns]]
match = "ask me"
tool_calls = [{name = "ask_user", arguments = {question = "Which \\u202Eelo\\u2028 EVIL colour?", options = "red;blue"}}]
[[turns]]
match = "ask me"
text = "So it is red."
[[turns]]
match = "keep this"
tool_calls = [{name = "remember", arguments = {text = "EVIL is kept"}}]
[[turns]]
match = "keep this"
text = "Kept."
[[turns]]
repeat = true
text = "Hoot hoot."
""".replace("EVIL", EVIL.replace('"', "'").replace("'window.hit=1'", "window.hit=1"))


@dataclass
class Page:
    """What tests work with."""

    box: Box
    core: Core
    browser: Browser
    port: int

    @property
    def address(self) -> str:
        return f"http://localhost:{self.port}"

    def begin(self) -> Browser:
        """A new conversation in a window of usual size."""
        self.browser.resize(1000, 700)
        self.browser.press("New conversation")
        said = "return document.querySelectorAll('#log .user, #log .assistant, #log .tool').length"
        until(lambda: self.browser.run(said) == 0, "the conversation is empty")
        return self.browser

    def say(self, text: str) -> None:
        self.browser.type("#text", text + ENTER)

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> int:
        """The status of a request without the browser; `Host` is ours unless it is given."""
        wire = HTTPConnection("127.0.0.1", self.port, timeout=30)
        wire.putrequest(method, path, skip_host="Host" in headers)
        for name, value in {**headers, "Content-Length": str(len(body or ""))}.items():
            wire.putheader(name.replace("_", "-"), value)
        wire.endheaders((body or "").encode())
        try:
            return wire.getresponse().status
        finally:
            wire.close()


# Notes in the page itself whether a part of the answer was shown: it may be whole before a busy machine looks.
STREAMED = """
window.isStreamed = false
const look = () => document.querySelectorAll('#log .working').forEach(one => window.isStreamed ||= one.innerText.includes('Tawny'))
new MutationObserver(look).observe(document.body, {attributes: true, characterData: true, childList: true, subtree: true})
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def page(shared_box: Box) -> Iterator[Page]:
    port = free_port()
    shared_box.environ |= {"OWLBOX__CHANNELS__WEB__ENABLED": "true", "OWLBOX__CHANNELS__WEB__PORT": str(port)}
    shared_box.environ |= {"OWLBOX__POOLS__SECOND": '["local"]', "OWLBOX__SYSTEM__TIMEZONE": "Asia/Kolkata", "TZ": "America/Lima"}
    script(shared_box, PLAY)
    core = shared_box.serve()
    with browsing() as browser:
        made = Page(shared_box, core, browser, port)
        until(lambda: _answers(made), "the page is served")
        invite = core.call("login.invite", person="ann")["address"]
        browser.open(invite)
        browser.shows("New conversation")
        yield made


def _answers(page: Page) -> bool:
    try:
        return page.ask("GET", "/") == 200
    except OSError:
        return False


def is_inert(browser: Browser) -> bool:
    made = "#app img[onerror], #app script, #app svg, a[href^='java']"
    return not browser.run("return window.hit || document.querySelector(arguments[0])", made)


@pytest.mark.covers("A-179")
def test_an_invite_logs_in_once_and_an_answer_streams_in_as_markdown(page: Page) -> None:
    browser = page.begin()
    browser.run(STREAMED)
    page.say("tell me of owls")
    until(lambda: browser.run("return window.isStreamed"), "its beginning stood there before it was whole")
    browser.shows("tawny", "inner", "print", css="#log")
    until(lambda: not browser.run("return document.querySelector('.working')"), "the answer is whole")
    found = browser.run(
        "return ['h3', 'strong', 'em', 'th[scope=col]', 'ol li ul li', 'pre code', 'a[rel~=noopener]']"
        ".map(one => document.querySelectorAll('#log .assistant ' + one).length)"
    )
    assert found == [1, 1, 1, 2, 1, 1, 2] and "<https" not in browser.text("#log")
    assert is_inert(browser) and "onerror" in browser.text("#log")
    assert browser.problems() == []
    used = page.core.call("login.list", person="ann")
    assert len(used) == 1 and "Chrome" in used[0]["agent"] and page.core.call("people.show", person="ann")["name"] == "ann"


@pytest.mark.covers("A-179")
def test_moments_are_shown_in_the_zone_of_the_box_and_not_in_that_of_the_browser(page: Page) -> None:
    browser = page.begin()
    assert browser.run("return Intl.DateTimeFormat().resolvedOptions().timeZone") not in ("Asia/Kolkata", "Asia/Calcutta")
    page.say("when is it")
    browser.find("#log .assistant time")
    at, said = browser.run("const one = document.querySelector('#log .user time'); return [one.dateTime, one.textContent]")
    there = datetime.fromisoformat(at.replace("Z", "+00:00")).astimezone(ZoneInfo("Asia/Kolkata"))
    assert " ".join(said.split()) == f"{there:%I:%M %p}".removeprefix("0")
    listed = browser.run("return document.querySelector('#threads small').textContent")
    assert f"{there:%-m/%-d/%y}" in listed


def test_messages_sent_one_after_the_other_are_one_conversation_and_are_shown_at_once(page: Page) -> None:
    browser = page.begin()
    page.say("hold on please")
    page.say("and then")
    assert "hold on please" in browser.text("#log .user") and browser.text("#log").count("and then") == 1
    browser.shows("Hoot hoot.", css="#log")
    thread = page.core.call("thread.list", limit=1)[0]["id"]
    events = page.core.call("thread.view", id=thread)["events"]
    assert [one["content"][:8] for one in events] == ["hold on ", "and then", "one two ", "Hoot hoo"]
    assert browser.text("#log").count("and then") == 1 and browser.problems() == []


def test_an_empty_page_has_a_hint_and_a_long_title_stays_in_its_list(page: Page) -> None:
    browser = page.begin()
    browser.shows("Ask about your notes", css=".hint")
    assert browser.run("return document.querySelector('#text').offsetWidth") > 400, "the hint takes no room from the line below"
    page.say("a" * 300)
    browser.shows("Hoot hoot.", css="#log")
    browser.shows("aaaaaaaa", css="#threads")
    widths = "return ['#threads button', '#side'].map(one => document.querySelector(one).clientWidth)"
    inner, outer = browser.run(widths)
    assert inner < outer and "aaaa" in browser.run("return document.querySelector('#threads button').title")
    assert browser.run("return document.querySelector('.hint').checkVisibility()") is False


def test_what_tools_models_and_titles_say_is_inert(page: Page) -> None:
    browser = page.begin()
    page.say(f"keep this {EVIL}")
    browser.shows("Kept.", "used remember", css="#log")
    browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    browser.shows("is kept", css="#log")
    browser.shows("<img src=x", css="#title")
    browser.shows("<img src=x", css="#threads")
    assert is_inert(browser) and browser.problems() == []


# What froze a tab in a few thousand letters, each grown to 100 kB, and what is their like.
LONG = """
const of = (size, unit) => unit.repeat(Math.ceil(size / unit.length)).slice(0, size)
const gap = (size) => of(size, " ")
return (size) => ({
  cells: "|\\n" + gap(size / 2) + "-" + gap(size / 2) + "x", lead: "|\\n" + gap(size) + "x-", stars: of(size, "*a "),
  lines: of(size, "_a "), brackets: of(size, "["), links: of(size, "[a]("), pictures: of(size, "!["),
  ends: "# a" + of(size, " #") + "x",
  heading: "# a" + gap(size) + "b", trail: "a" + gap(size) + "b\\nc", rule: of(size, "- ") + "x",
  ticks: of(size, "`a``b"),
  addresses: of(size, "<http://"), quotes: of(size, "> ") + "a", fences: of(size, "```\\n"), tildes: of(size, "~~a "),
  items: Array.from({length: size / 100}, (_, n) => " ".repeat(n % 200) + "- a").join("\\n"), blanks: "- a\\n" + of(size, "\\n"),
  marks: of(size, "***a **b *c __d _e ~~f "), table: of(size / 3, "|a") + "\\n" + of(size / 3, "|-") + "\\n" + of(size / 3, "|\\n"),
  separator: "- " + gap(size) + "x\\u2028y", nested: of(size, "[a]((b)"), urls: of(size, "http://a.b)))))"),
  hidden: of(size, "\\u202e"),
})
"""


@pytest.mark.covers("A-179")
@pytest.mark.parametrize("size", [4800, 100_000])
def test_no_text_holds_up_the_page(page: Page, size: int) -> None:
    """A text of four times the length takes about four times as long: `make bench-page` says how long that is.

    The best of many tries, as many as a machine needs that does something else as well: work that grows faster has none.
    """
    slow: list[str] = page.browser.run(
        f"const made = (() => {{{LONG}}})();"
        """const {render} = await import("/markdown.js");
        const [short, long] = [made(arguments[0] / 4), made(arguments[0])];
        const took = text => { const at = performance.now(); render(text); return performance.now() - at };
        return Object.keys(long).map(name => {
            let [least, most] = [Infinity, Infinity];
            for (let n = 0; n < 60 && (n < 3 || most > 8 * least + 10); n += 1) {
                least = Math.min(least, took(short[name]));
                most = Math.min(most, took(long[name]));
            }
            return most > 8 * least + 10 ? `${name}: ${least} ms, then ${most} ms` : "";
        })""",
        size,
    )
    assert len(slow) == 24 and [one for one in slow if one] == []


def test_the_page_draws_what_people_mean_by_links_and_marks(page: Page) -> None:
    drawn = page.browser.run(
        """const {render, element} = await import("/markdown.js");
        return arguments[0].map(one => { const at = element("div"); at.append(render(one)); return at.innerHTML
            .replaceAll(' target="_blank" rel="noopener noreferrer nofollow"', "") })""",
        [
            "see https://example.org/Owl_(bird), or (https://example.org/a).",
            "[not] http://[::1]:8080/a, http://[x] and http://[",
            "[an owl](https://example.org/Owl_(bird)) and [b](<https://example.org/b>) [c](javascript:x)",
            "**a *b*** _c_d_ 2 * 3 * 4 ~~e~~ ***f*** *g\n\n## h ##\n- - -",
            "3. eggs\n1. milk",
            "1. one\n1. two",
            "one  \ntwo\\\nthree \u202eevil\u2069 \U000e0034 \u2028 👩‍👩‍👧 ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 नमस्‍ते",
        ],
    )
    assert drawn == [
        '<p>see <a href="https://example.org/Owl_(bird)">https://example.org/Owl_(bird)</a>, or '
        '(<a href="https://example.org/a">https://example.org/a</a>).</p>',
        '<p>[not] <a href="http://[::1]:8080/a">http://[::1]:8080/a</a>, http://[x] and http://[</p>',
        '<p><a href="https://example.org/Owl_(bird)">an owl</a> and <a href="https://example.org/b">b</a> <span>c</span></p>',
        "<p><strong>a <em>b</em></strong> <em>c_d</em> 2 * 3 * 4 <del>e</del> <strong><em>f</em></strong> *g</p><h4>h</h4><hr>",
        '<ol start="3"><li value="3">eggs</li><li value="1">milk</li></ol>',
        "<ol><li>one</li><li>two</li></ol>",
        "<p>one<br>two<br>three \\u{202e}evil\\u{2069} \\u{e0034}\n👩‍👩‍👧 ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 नमस्‍ते</p>",
    ]


@pytest.mark.covers("A-179")
def test_a_conversation_branches_and_both_branches_stay(page: Page) -> None:
    browser = page.begin()
    page.say("first words")
    browser.shows("Hoot hoot.", css="#log")
    browser.press("Branch here")
    browser.shows("Branches:")
    page.say("another way")
    browser.shows("another way", css="#log")
    until(lambda: browser.text("#log").count("Hoot hoot.") == 2, "the answer of the branch")
    browser.run("document.querySelector('#branches button:not([aria-current])').click()")
    until(lambda: "another way" not in browser.text("#log") and "first words" in browser.text("#log"), "the first branch")
    browser.press("Ask again")
    until(lambda: browser.run("return document.querySelector('#text').value") == "first words", "the words are there to be changed")
    assert "first words" not in browser.text("#log") and browser.problems() == []
    browser.run("const one = document.querySelector('#text'); one.value = ''; one.dispatchEvent(new Event('input'))")


def test_a_question_is_answered_with_a_button_and_the_answer_goes_on(page: Page) -> None:
    browser = page.begin()
    page.say("ask me")
    browser.shows("Which \\u{202e}elo\\u{2028} <img", css="#log .card h3")
    browser.shows("1", css="#waiting-count")
    assert is_inert(browser)
    browser.press("red")
    browser.shows("So it is red.", css="#log")
    until(lambda: not browser.run("return document.querySelector('.card, .working')"), "nothing waits and nothing is drafted")
    assert browser.text("#log").count("So it is red.") == 1 and browser.problems() == []


@pytest.mark.covers("A-179", "A-180")
def test_files_are_sent_with_a_message_told_to_the_model_and_their_names_are_inert(page: Page, tmp_path: Path) -> None:
    browser = page.begin()
    hostile = tmp_path / EVIL.replace("/", "").replace("'", "")[:100]
    hostile.write_text(f"The peas are ripe. {EVIL}")
    picture = tmp_path / "owl.png"
    browser.run("document.querySelector('#attach').focus()")
    browser.screenshot(picture)
    browser.choose("#file", hostile, picture)
    browser.shows("owl.png, ", "sees no pictures", css="#uploads")
    browser.shows("<img src=x", css="#uploads li:first-child")
    browser.press("Remove owl.png")
    browser.choose("#file", picture)
    browser.shows("owl.png, ", "sees no pictures", css="#uploads")
    page.say("read these")
    browser.shows("Hoot hoot.", css="#log")

    def is_told() -> bool:  # opened anew each time: what is stored takes the place of what was shown meanwhile
        browser.run("document.querySelectorAll('#log details').forEach(one => one.open = true)")
        return all(words in browser.text("#log") for words in ("read these", "The peas are ripe.", "/work/uploads/owl.png"))

    until(is_told, lambda: browser.text("#log"))
    assert is_inert(browser) and browser.text("#uploads") == "" and browser.problems() == []
    [folder] = (page.box.home.root / "sessions").glob("local-ann*")
    assert (folder / "data/uploads/owl.png").read_bytes() == picture.read_bytes()


def pick(browser: Browser, css: str, value: str) -> None:
    """Choose in a list that is shown."""
    browser.find(css)
    browser.run(
        "const one = document.querySelector(arguments[0]); one.value = arguments[1]; one.dispatchEvent(new Event('change'))",
        css,
        value,
    )


def test_what_was_said_is_found_and_opened_and_what_is_found_is_inert(page: Page) -> None:
    browser = page.begin()
    page.say(f"the heron nests by the mill {EVIL}")
    browser.shows("Hoot hoot.", css="#log")
    page.begin()
    browser.type("#find", "HERON nests")
    browser.shows("the heron nests by the mill <img", css="#threads")
    assert browser.text("#threads").count("heron") == 1 and is_inert(browser)
    browser.run("document.querySelector('#threads button').click()")
    browser.shows("the heron nests", "Hoot hoot.", css="#log")
    browser.run("document.querySelector('#find').value = ''")
    browser.type("#find", "zebras in snow")
    browser.shows("No messages found.", css="#threads")
    browser.run("const one = document.querySelector('#find'); one.value = ''; one.dispatchEvent(new Event('input'))")
    until(lambda: "Nobody" not in browser.text("#threads"), "all conversations are listed again")
    assert browser.problems() == []


def test_another_pool_answers_when_it_is_chosen_and_the_choice_is_that_of_the_conversation(page: Page) -> None:
    browser = page.begin()
    pick(browser, "#model", "second")
    page.say("with the other one")
    browser.shows("Hoot hoot.", css="#log")
    thread = page.core.call("thread.list", limit=1)[0]
    assert thread["settings"]["model"] == "second"
    page.begin()
    assert browser.run("return document.querySelector('#model').value") == ""
    browser.run("document.querySelector('#threads button').click()")
    until(lambda: browser.run("return document.querySelector('#model').value") == "second", "the choice is shown")
    pick(browser, "#model", "")
    until(lambda: page.core.call("run.view", run=thread["id"])["run"]["settings"]["model"] == "", "it is set back")
    assert browser.problems() == []


def test_another_role_answers_from_the_next_message_on_and_what_is_refused_goes_back(page: Page) -> None:
    browser = page.begin()
    shown = "return getComputedStyle(document.querySelector('#role-label')).display !== 'none'"
    assert not browser.run(shown), "a conversation that has not begun has nobody to choose"
    page.say("whom do I talk with")
    browser.shows("Hoot hoot.", css="#log")
    until(lambda: browser.run(shown), "a role can be chosen")
    thread = page.core.call("thread.list", limit=1)[0]["id"]
    pick(browser, "#role", "researcher")
    until(lambda: page.core.call("run.view", run=thread)["run"]["role"] == "researcher", "it answers")
    page.core.call("role.use", run=thread, role="")
    page.say("and now")
    until(lambda: browser.run("return document.querySelector('#role').value") == "", "what another screen chose is shown")
    browser.run("document.querySelector('#role').append(new Option('nobody', 'nobody'))")
    pick(browser, "#role", "nobody")
    browser.shows("no role 'nobody'", css="#notice")
    assert browser.run("return document.querySelector('#role').value") == ""
    assert browser.problems() == []


def test_a_group_has_conversations_of_its_own(page: Page) -> None:
    page.core.call("group.change", group="birds", add=["ann"])
    browser = page.begin()
    browser.run("location.reload()")
    browser.shows("For", css="#context-label")
    pick(browser, "#context", "group:birds")
    page.say("among birds")
    browser.shows("Hoot hoot.", css="#log")
    [found] = [one for one in page.core.call("thread.list", limit=5) if "among birds" in one["title"]]
    assert page.core.call("session.view", id=found["session"])["context"] == "group:birds"
    pick(browser, "#context", "")
    page.say("for myself")
    browser.shows("for myself", "Hoot hoot.", css="#log")
    assert "among birds" not in browser.text("#log")
    assert browser.problems() == []


def test_a_killed_core_is_waited_for_and_what_was_typed_and_sent_meanwhile_arrives_once(page: Page) -> None:
    browser = page.begin()
    page.say("before")
    browser.shows("Hoot hoot.", css="#log")
    browser.type("#text", "typed mean")
    page.core.kill()
    browser.shows("Disconnected", css="#state")
    browser.type("#text", "while" + ENTER)
    page.core = page.box.serve()
    until(lambda: browser.text("#log").count("Hoot hoot.") == 2, "the answer of the next core")
    until(lambda: browser.text("#log").count("typed meanwhile") == 1, "what was sent is shown once")
    assert browser.text("#state") == ""
    thread = page.core.call("thread.list", limit=1)[0]["id"]
    said = [one["content"] for one in page.core.call("thread.view", id=thread)["events"] if one["role"] == "user"]
    assert said == ["before", "typed meanwhile"]
    browser.problems()  # of connections that were refused meanwhile


def test_what_waits_to_be_sent_goes_to_no_other_context(page: Page) -> None:
    page.core.call("group.change", group="birds", add=["ann"])
    browser = page.begin()
    browser.run("location.reload()")
    browser.shows("For", css="#context-label")
    browser.type("#text", "for me alone")
    page.core.kill()
    browser.run("document.querySelector('#send').click()")
    until(lambda: browser.run("return document.querySelector('#state').textContent") != "", "it is noticed")
    switch = "const one = document.querySelector('#context'); one.value = 'group:birds'; one.dispatchEvent(new Event('change'))"
    browser.run(switch)
    page.core = page.box.serve()
    page.say("for the birds")
    browser.shows("Hoot hoot.", css="#log")
    pick(browser, "#context", "")
    threads = lambda: {one["title"]: one["session"] for one in page.core.call("thread.list", limit=5)}  # noqa: E731
    until(lambda: "for me alone" in threads(), "it is sent where it was written")
    contexts = {title: page.core.call("session.view", id=session)["context"] for title, session in threads().items()}
    assert (contexts["for me alone"], contexts["for the birds"]) == ("user:ann", "group:birds")
    browser.problems()  # of connections that were refused meanwhile


def test_a_long_title_makes_the_page_no_wider(page: Page) -> None:
    browser = page.begin()
    page.say("a conversation whose first words are many more than a telephone has room for in a line")
    browser.shows("Hoot hoot.", css="#log")
    browser.resize(360, 640)
    assert browser.run(
        "return [document.documentElement.scrollWidth, document.querySelector('#title').textContent.length > 50]"
    ) == [*(360, True)]


def test_a_phone_has_room_for_all_of_it_and_no_line_is_wider_than_the_screen(page: Page) -> None:
    browser = page.begin()
    page.say("tell me of owls")
    browser.shows("a link", css="#log")
    browser.resize(360, 640)
    for view in ("Tasks", "Approvals", "Settings", "Chat"):
        browser.press(view)
        wide = browser.run(
            "return [...document.querySelectorAll('*')].filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth"
            " && !one.closest('.code, .table, .tabs, .unseen')).map(one => `${one.tagName} ${one.id} ${one.className}`)"
        )
        assert (browser.run("return document.documentElement.scrollWidth"), wide) == (360, []), view
    small = browser.run(
        "return [...document.querySelectorAll('.bar button, .composer button')].filter(one => one.checkVisibility()"
        " && one.getBoundingClientRect().height < 40).map(one => one.textContent)"
    )
    assert small == []
    browser.press("Conversations")
    browser.shows("tell me of owls", css="#side.is-open")
    browser.keys(ESCAPE)
    assert browser.run("return document.activeElement.id") == "open-side"
    browser.resize(1000, 700)


def test_everything_is_reached_by_keyboard_in_order_and_shown_to_be_focused(page: Page) -> None:
    browser = page.begin()
    browser.run("document.querySelector('.skip').focus()")
    seen: list[Any] = []
    focus = "const one = document.activeElement, name = one.id || one.textContent;"
    while len(seen) < 40 and (not seen or seen[-1][0] != "send"):
        browser.keys(TAB)
        seen.append(browser.run(f"{focus} return [name, getComputedStyle(one).outlineStyle]"))
    names = [name for name, _ in seen]
    assert (names[:5], names[-3:]) == (["Chat", "Tasks", "Approvals", "Settings", "context"], ["attach", "text", "send"])
    assert [name for name, outline in seen if outline == "none"] == []
    assert browser.problems() == []


def test_strangers_are_refused_each_with_a_line_of_the_log_and_no_model_is_asked(page: Page) -> None:
    asked = page.core.call("usage.requests", limit=1)
    token = "owlbox=x" * 4
    ours = page.address
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13", "Sec_WebSocket_Key": "A" * 22 + "=="}
    host = {"Host": f"localhost:{page.port}"}
    refused = {
        "an old cookie": page.ask("GET", "/rpc", Origin=ours, Cookie=token, **host, **upgrade),
        "no cookie": page.ask("GET", "/rpc", Origin=ours, **host, **upgrade),
        "another site": page.ask("GET", "/rpc", Origin="http://evil.example", Cookie=token, **host, **upgrade),
        "another name": page.ask("GET", "/", Host="evil.example"),
        "a form of another site": page.ask("POST", "/logout", "{}", Origin="http://evil.example", **host),
        "a login of another site": page.ask("POST", "/login", "{}", Origin="http://evil.example", **host),
        "a wrong invite": page.ask("POST", "/login", '{"invite": "x"}', Origin=ours, Content_Type="application/json", **host),
        "too much": page.ask("POST", "/login", "x" * 5000, Origin=ours, Content_Type="application/json", **host),
    }
    assert refused == {
        **dict.fromkeys(("an old cookie", "no cookie"), 401),
        **dict.fromkeys(("another site", "a form of another site", "a login of another site", "a wrong invite"), 403),
        "another name": 421,
        "too much": 413,
    }
    lines = page.box.log("web/web")
    assert len([one for one in lines if one.get("result") in ("401", "403", "421", "413")]) == len(refused)
    assert page.core.call("usage.requests", limit=1) == asked
    noted = page.core.call("audit.list", kind="login_refused")
    assert len(noted["rows"] if isinstance(noted, dict) else noted) == 1


def test_a_login_or_person_that_is_ended_elsewhere_ends_here_at_once(page: Page) -> None:
    browser = page.begin()
    [login] = page.core.call("login.list", person="ann")
    page.core.call("login.end", id=login["id"])
    browser.shows("Log in")
    page.core.call("login.set_password", person="ann", password="a barn by night")
    browser.type("#login-name", "ann")
    browser.type("#login-password", "a barn by day" + ENTER)
    browser.shows("not right")
    browser.run("document.querySelector('#login-password').value = ''")
    browser.type("#login-password", "a barn by night" + ENTER)
    browser.shows("New conversation", "first words")
    path = Path(page.box.home.root / "page.png")
    browser.screenshot(path)
    assert path.stat().st_size > 5000
    clear = "for (const one of ['name', 'password']) document.querySelector(`#login-${one}`).value = ''"
    for is_active, shown in ((False, "not right"), (True, "first words")):
        page.core.call("people.activate", person="ann", is_active=is_active)
        browser.shows("Log in")
        browser.run(clear)
        browser.type("#login-name", "ann")
        browser.type("#login-password", "a barn by night" + ENTER)
        browser.shows(shown)
    page.core.call("people.remove", person="ann")
    browser.shows("Log in")
