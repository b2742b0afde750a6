"""Tools that look at the web: a page by its URL, pages by words. What they return was written by strangers."""

from typing import Annotated, Literal

from appliance.agent.dispatch import actor_of
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.clock import monotonic_s
from appliance.errors import BadInput
from appliance.policy.taint import ToolReach
from appliance.records import Outcome
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Runs
from appliance.web.fetch import Fetch, Fetched, check_found
from appliance.web.page_text import Readable
from appliance.web.result_pages import ORIGIN, Harvest
from appliance.web.search_engines import MAX_RESULTS, Engine, WebHit

Number = int | float | str | None  # models write numbers in many ways; what is none means the default
TIMEOUT_S, MAX_BYTES, MAX_CHARS, RESULTS = 20, 524_288, 8000, 5
SEARCH_S = 25.0  # of a search with the pages behind it


# How long one waits and how much one reads is seen by who is asked.
ASKS = ToolReach("web", target="url", data=("url", "timeout_seconds", "max_bytes"), usual=(TIMEOUT_S, MAX_BYTES))


@tool(group="web", is_read_only=True, menu=(), needs=Needs(network="proxy", reach=ASKS))
def fetch_url(
    url: Annotated[str, Range(1, 4096), "the whole address, https://..."],
    timeout_seconds: Annotated[Number, "how long it may take"] = TIMEOUT_S,
    max_bytes: Annotated[Number, "how much of the page is read"] = MAX_BYTES,
    max_chars: Annotated[Number, "how much of its text is returned"] = MAX_CHARS,
    format: Annotated[Literal["text", "html"], "the words of the page, or its source"] = "text",
    *,
    fetch: Fetch,
    readable: Readable,
    caller: Caller,
) -> Outcome:
    """Read a page of the public web."""
    found = fetch.get(
        url,
        session=caller.session or caller.run,
        run=caller.run,
        timeout_s=_parse_number(timeout_seconds, TIMEOUT_S),
        max_bytes=int(_parse_number(max_bytes, MAX_BYTES)),
        cancel=caller.cancel,
    )
    check_found(found)
    if format == "html":
        title, text = "", readable.source(found)
    else:
        words = readable.words(found)
        title, text = words.title, words.text
    limit = int(_parse_number(max_chars, MAX_CHARS))
    shown = text[:limit]
    head = f"{' '.join(title.split())[:200]} — {found.url}" if title else found.url
    notes = [f"[cut: {limit} of {len(text)} characters shown]"] if len(text) > limit else []
    notes += [f"[the page goes on after {len(found.body)} bytes]"] if found.is_cut else []
    data = {**_answer_data(found), "title": title, "is_cut": bool(notes), "text": shown}
    return Outcome(200, "ok", "\n".join([head, "", shown or "(no text)", *notes]), data=data, origin=ORIGIN, source=found.url)


@tool(
    group="web",
    is_read_only=True,
    menu=(),
    needs=Needs(network="proxy", reach=ToolReach("search", named="search", data=("query",))),
)
def web_search(
    query: Annotated[str, Range(0, 1000), "what to look for"],
    max_results: Annotated[Number, "how many results"] = RESULTS,
    *,
    engine: Engine,
    harvest: Harvest,
    runs: Runs,
    caller: Caller,
) -> Outcome:
    """Search the web; returns titles, addresses and a few words of each page."""
    if not query.strip():
        raise BadInput("the query is empty", hint="say what to look for", outcome="invalid_arguments")
    end_s = monotonic_s() + min(SEARCH_S, 0.8 * caller.deadline_s)
    session = caller.session or caller.run
    count = min(int(_parse_number(max_results, RESULTS)), MAX_RESULTS)
    hits = engine.search(query, count, session=session, run=caller.run, cancel=caller.cancel)
    if not hits:
        return Outcome(200, "no_results", f"No results for {query.strip()!r}.", data={"results": []}, origin=ORIGIN)
    kept: list[str] = []
    if caller.run and caller.terms.layout == "entries":  # only such a run is shown what is kept for it
        left_s = max(1.0, end_s - monotonic_s())
        kept = harvest.gather(hits, actor_of(runs, caller), session=session, timeout_s=left_s, cancel=caller.cancel)
    text = "\n".join(_result_line(number, hit) for number, hit in enumerate(hits, 1))
    results = [{"title": hit.title, "url": hit.url, "snippet": hit.snippet} for hit in hits]
    source = f"found by a search for {query.strip()}"
    return Outcome(200, "ok", text, data={"results": results, "kept": kept}, origin=ORIGIN, source=source)


def _result_line(number: int, hit: WebHit) -> str:
    """A result as it is read."""
    return f"{number}. {hit.title} — {hit.url}" + (f"\n   {hit.snippet}" if hit.snippet else "")


def _answer_data(found: Fetched) -> dict[str, object]:
    """What a caller may want to know of an answer beside its text."""
    return {
        "url": found.url,
        "status": found.status,
        "content_type": found.content_type,
        "size_bytes": len(found.body),
        "from_cache": found.from_cache,
    }


def _parse_number(value: Number, default: float) -> float:
    """A number that may be used: at least 1, and the default for what is none."""
    try:
        number = float(value) if value is not None else default
    except (ValueError, OverflowError):
        return default
    return default if number != number or number in (float("inf"), float("-inf")) else max(1.0, number)
