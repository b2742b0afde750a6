"""Remote models through a real core, broker and command line, at a real server of ours: failover, words for people, usage."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from process import Box, a_box  # noqa: F401
from record_tools import replace
from test_broker import TOKEN, started
from wire import Call, Half, Status, Turn, Used, Wire, playing

from appliance.cli.usage import dollars, spent, state
from appliance.clock import monotonic_s
from appliance.models.prices import dollars as known_dollars
from appliance.records import Ask, Message, to_plain
from appliance.runtime.paths import Home
from appliance.tui.status_line import remote_words

HOOT = Turn(chunks=("Hoot ", "hoot."), used=Used(prompt=1000, output=50, cached=400))
DENIED = Status(401, {"error": {"message": "Incorrect API key provided", "type": "invalid_request_error"}})
LIMITED = Status(429, {"error": {"message": "Rate limit reached"}}, {"Retry-After": "1"})
BROKEN = Status(500, {"error": {"message": "The server had an error"}})
TOO_LONG = Status(400, {"error": {"message": "maximum context length is 900 tokens", "code": "context_length_exceeded"}})
KIND = {"a": "openai", "b": "anthropic", "c": "gemini"}


@contextmanager
def remote_box(box: Box, pool: str = '"a/m", "b/m"', more: str = "") -> Iterator[dict[str, Wire]]:
    """A box whose default pool is asked at servers of ours, each in a format of its own."""
    box.environ.pop("OWLBOX__MODELS__SCRIPT", None)
    with ExitStack() as stack:
        wires = {name: stack.enter_context(playing()) for name in KIND}
        lines = [f"[models]\nlocal_only = false\n[pools]\ndefault = [{pool}]\nsmall = [{pool}]\n", '[runs]\ntitles = "words"\n']
        for name, server in wires.items():
            base = f"{server.url}/v1" if KIND[name] == "openai" else server.url
            lines.append(f'[providers.{name}]\nkind = "{KIND[name]}"\nbase_url = "{base}"\nkey = "sk-{name}-123456789"\n')
        box.home.config.write_text("".join(lines) + '[prices."a/m"]\ninput = 3\noutput = 15\ncached = 0.3\n' + more)
        yield wires


def asked_for(server: Wire) -> list[Any]:
    """The bodies of the answers that were asked for."""
    return [seen.body for seen in server.seen if seen.body is not None]


@pytest.mark.covers("A-116", "A-119", "R-201", "A-118", "S-022")
def test_another_provider_answers_and_is_the_one_that_is_written_down(box: Box) -> None:
    with remote_box(box, '"a/m", "b/m", "c/m"') as wires:
        wires["a"].answers = [DENIED, HOOT]
        wires["b"].answers = [BROKEN]
        wires["c"].answers = [HOOT]
        core = box.serve()
        done = box.run("ask", "who are you?")
        assert (done.returncode, done.stdout) == (0, "Hoot hoot.\n"), done.stderr
        assert [len(asked_for(wires[name])) for name in "abc"] == [1, 1, 1]
        warnings = [line for line in box.log("core") if "failed before it answered" in line["message"]]
        assert [line["level"].lower() for line in warnings][0] == "warning" and "a/m" in warnings[0]["message"]
        run = box.json("thread", "list")[0]["id"]
        turn = core.call("thread.view", id=run)["turns"][0]
        assert (turn["route"], turn["provider"], turn["prompt_tokens"], turn["cached_tokens"]) == ("c/m", "c", 1000, 400)
        assert turn["cost_micros"] == 0 and turn["is_estimated"] == 0  # a server of this machine
        assert box.run("ask", "and now?").stdout == "Hoot hoot.\n"
        sums = {one["name"]: one for one in box.json("usage", "--by", "provider")}
        assert {name: (one["requests"], one["prompt"], one["output"]) for name, one in sums.items()} == {
            "a": (1, 1000, 50),
            "c": (1, 1000, 50),
        }
        assert sums["a"]["cost_micros"] == 600 * 3 + 120 + 50 * 15
        newest = box.json("call", "usage.requests")[0]
        assert (newest["purpose"], newest["cost_micros"], newest["provider"]) == ("turn", 2670, "a")
        by = {name: box.json("usage", "--by", name) for name in ("person", "session", "day", "model")}
        assert all(sum(one["requests"] for one in found) == 2 for found in by.values())
        assert by["person"][0]["name"] and by["session"][0]["name"].startswith("local:")
        status = box.run("status").stdout
        assert "providers    a ok; b failed 1 times" in status and "spending     spent $0.0027 today" in status


@pytest.mark.covers("A-111")
def test_another_model_is_asked_as_soon_as_the_configuration_names_it(box: Box) -> None:
    with remote_box(box, '"a/m"') as wires:
        wires["a"].answers, wires["b"].answers = [HOOT], [replace(HOOT, chunks=("Tu-whit.",))]
        box.serve()
        assert box.run("ask", "who are you?").stdout == "Hoot hoot.\n"
        text = box.home.config.read_text()
        box.home.config.write_text(text.replace('default = ["a/m"]', 'default = ["b/n"]'))
        assert box.run("reload").returncode == 0
        assert box.run("ask", "who are you now?").stdout == "Tu-whit.\n"
        assert [len(asked_for(wires[name])) for name in "ab"] == [1, 1] and asked_for(wires["b"])[0]["model"] == "n"


@pytest.mark.covers("S-015", "E-250")
def test_a_failure_is_told_in_words_and_leaves_nothing_in_the_history(box: Box) -> None:
    with remote_box(box, '"a/m"') as wires:
        wires["a"].answers = [DENIED, HOOT]
        box.serve()
        done = box.run("ask", "first question")
        assert done.returncode != 0 and "did not accept the key" in done.stderr and "owlbox secret set llm/" in done.stderr
        run = box.json("thread", "list")[0]["id"]
        assert [event["kind"] for event in box.events(run) if event["role"] == "assistant"] == []
        assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr and len(done.stderr) < 300
        assert "No matches found" in box.run("thread", "search", "first").stdout
        done = box.run("ask", "--thread", run, "second question")
        assert done.stdout == "Hoot hoot.\n", done.stderr
        sent = json.dumps(asked_for(wires["a"])[-1])
        assert "second question" in sent and "accept" not in sent and "Incorrect" not in sent


@pytest.mark.covers("R-198", "A-023")
def test_a_person_sees_what_an_answer_waits_for_and_then_the_answer(box: Box) -> None:
    with remote_box(box, '"a/m"') as wires:
        wires["a"].answers = [LIMITED, HOOT]
        box.serve()
        done = box.run("chat", text="who are you?\n")
        assert done.returncode == 0 and "Hoot hoot." in done.stdout
        assert "… a has had too many requests" in done.stderr
        run = box.json("thread", "list")[0]["id"]
        (waited,) = (event for event in box.events(run) if event["outcome"] == "waiting")
        assert (waited["kind"], waited["status"]) == ("status_change", 102)


def test_a_service_that_does_not_do_this_at_all_is_not_asked_again_and_again(box: Box) -> None:
    with remote_box(box, '"a/m"') as wires:
        wires["a"].always = Status(501, {"error": {"message": "Not Implemented"}})
        box.serve()
        began_s = monotonic_s()
        done = box.run("ask", "who are you?")
        assert done.returncode != 0 and "HTTP 501" in done.stderr and len(asked_for(wires["a"])) == 1
        assert monotonic_s() - began_s < 20


@pytest.mark.covers("A-116")
def test_that_another_model_answers_is_said_once_for_a_question(box: Box) -> None:
    limit = "[spending]\nday_usd = 0.0001\n"
    with remote_box(box, '"a/m", "b/m"', f'{limit}[prices."b/m"]\n') as wires:
        call = Turn(calls=(Call("remember", (json.dumps(KEEPS),)),), finish="calls")
        wires["b"].answers = [call, replace(HOOT, chunks=("Kept.",)), HOOT]
        box.serve()
        done = box.run("chat", text="Keep that the roses are red.\nand now?\n")
        assert "Kept." in done.stdout and "Hoot hoot." in done.stdout, done.stderr
        said = [line for line in done.stderr.splitlines() if "is asked instead" in line]
        assert len(said) == 2 and all("$0.0001 for everybody today" in line and "b/m is asked instead" in line for line in said), (
            said
        )
        assert asked_for(wires["a"]) == [] and len(asked_for(wires["b"])) == 3


@pytest.mark.covers("S-022")
def test_what_was_said_is_said_once_although_the_answer_breaks_off(box: Box) -> None:
    with remote_box(box) as wires:
        wires["a"].answers = [Half(Turn(chunks=("One ", "two ", "three ", "four.")), 4)]
        wires["b"].answers = [HOOT]
        done = box.run("ask", "count")
        assert done.stdout.strip().startswith("One") and done.stdout.count("One") == 1 and "Hoot" not in done.stdout
        assert done.returncode != 0 and asked_for(wires["b"]) == []


NO_TOOLS = {
    "a": {"error": {"message": "registry.ollama.ai/library/m:latest does not support tools", "type": "api_error"}},
    "b": {"type": "error", "error": {"type": "invalid_request_error", "message": "tools are not supported by this model"}},
    "c": {"error": {"code": 400, "message": "Function calling is not enabled for models/m", "status": "INVALID_ARGUMENT"}},
}
KEEPS = {"text": "The roses are red.", "title": "roses"}


@pytest.mark.covers("E-327")
@pytest.mark.parametrize(("name", "is_told"), [("a", True), *((name, False) for name in KIND)])
def test_a_model_without_calls_does_in_words_what_others_do_with_them(box: Box, name: str, is_told: bool) -> None:
    def work(first: list[Any]) -> tuple[list[tuple[str, ...]], list[Any], str]:
        sent.clear()
        wires[name].answers = [*first, replace(HOOT, chunks=("Kept.",))]
        done = box.run("ask", "Keep that the roses are red.")
        assert (done.returncode, done.stdout) == (0, "Kept.\n"), done.stderr
        events = box.events(box.json("thread", "list")[0]["id"])
        deeds = [(e["kind"], e["role"], e["tool"], json.dumps(e["input"]), e["content"], e["status"]) for e in events]
        sent.extend(asked_for(wires[name]))
        wires[name].seen.clear()
        kept = box.run("read", "memory://notes/roses").stdout
        assert box.run("entry", "rm", "memory://notes/roses").returncode == 0
        return [deed for deed in deeds if deed[0] != "status_change"], list(sent), kept

    sent: list[Any] = []
    with remote_box(box, f'"{name}/m"') as wires:
        box.serve()
        call = Turn(calls=(Call("remember", (json.dumps(KEEPS),)),), finish="calls")
        natively, _, kept = work([call])
        line = json.dumps({"name": "remember", "arguments": KEEPS})
        said = replace(HOOT, chunks=(line[:9], line[9:]))
        if is_told:
            text = box.home.config.read_text()
            box.home.config.write_text(text.replace(f"[providers.{name}]", f"[providers.{name}]\ntools = false"))
            assert box.run("reload").returncode == 0
        in_words, bodies, kept_so = work([said] if is_told else [Status(400, NO_TOOLS[name]), said])
        assert in_words == natively and kept_so == kept and "roses are red" in kept
        assert [("tools" in body) for body in bodies] == ([] if is_told else [True]) + [False, False]
        assert "roses are red" in json.dumps(bodies[-1]) and "Result of remember" in json.dumps(bodies[-1])
        again, bodies, _ = work([said])
        assert again == natively and not any("tools" in body for body in bodies), "it is not offered them again"


def test_a_model_that_reads_less_than_was_thought_is_sent_less(box: Box) -> None:
    with remote_box(box, '"a/m"') as wires:
        text = "This model's maximum context length is 8192 tokens, however you requested 90000 tokens."
        wires["a"].answers = [Status(400, {"error": {"message": text, "code": "context_length_exceeded"}}), HOOT]
        assert box.run("ask", "hello").stdout == "Hoot hoot.\n"
        first, second = asked_for(wires["a"])
        limits = [next(body[name] for name in ("max_tokens", "max_completion_tokens") if name in body) for body in (first, second)]
        assert limits == [8192, 2048]


def test_a_prompt_too_long_falls_to_no_smaller_window(box: Box) -> None:
    with remote_box(box, '"big", "b/m"', '[routes.big]\nprovider = "a"\nmodel = "m"\ncontext = 200000\n') as wires:
        wires["a"].answers = [TOO_LONG]
        wires["b"].answers = [HOOT]
        done = box.run("ask", "hello")
        assert done.returncode != 0 and asked_for(wires["b"]) == [] and "Hoot" not in done.stdout


@pytest.mark.covers("A-122")
def test_a_broker_streams_several_answers_at_once(tmp_path: Path) -> None:
    with playing() as server:
        server.always = Turn(chunks=("word ",) * 20, pause_s=0.1)
        text = f'[models]\nlocal_only = false\n[pools]\ndefault = ["a/m"]\n[providers.a]\nbase_url = "{server.url}/v1"\n'
        (tmp_path / "owlbox.toml").write_text(text)
        with started(Home(tmp_path), OWLBOX_TOKEN=TOKEN) as broker:
            begun, order = threading.Barrier(3), []

            def listen(number: int) -> None:
                with broker.client() as client:
                    begun.wait(20)
                    params = {"route": "a/m", "ask": to_plain(Ask((), (Message("user", "talk"),), dialect="native"))}
                    order.extend(number for name, _ in client.stream("generate", params, deadline_s=60) if name == "piece")

            threads = [threading.Thread(target=listen, args=(number,)) for number in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [order.count(number) for number in range(3)] == [20, 20, 20]
            assert len(set(order[:20])) == 3  # mixed, not one after another


@pytest.mark.covers("A-129", "R-200")
def test_models_and_providers_are_listed(box: Box) -> None:
    with remote_box(box) as wires:
        box.serve()
        wires["a"].models = {"data": [{"id": "m", "context_length": 32000}, {"id": "org/n"}]}
        found = box.json("model", "remote")
        assert {one["name"]: one["window"] for one in found if one["provider"] == "a"} == {"a/m": 32000, "a/org/n": 0}
        assert [one["name"] for one in box.json("model", "providers")["providers"]] == ["a", "b", "c"]
        assert box.json("model", "reset", "a")["is_local_only"] is False
        assert "left alone" not in box.run("model", "providers").stdout


def test_a_task_waits_for_the_network_and_goes_on_when_it_is_back(box: Box) -> None:
    with remote_box(box, '"a/m"', "[llm]\ndeadline_ms = 1500\n") as wires:
        port_of = wires["a"].url.rpartition(":")[2]
        text = box.home.config.read_text()
        box.home.config.write_text(text.replace(f":{port_of}/", ":9/"))  # nobody listens there
        task = box.json("task", "add", "look after the wood")["id"]
        done = box.run("worker", "run")
        seen = box.json("task", "view", str(task))
        assert seen["status"] == "pending", done.stderr
        assert "waits for the network" in json.dumps(seen)
        box.home.config.write_text(text)
        wires["a"].always = HOOT
        box.run("worker", "run")
        assert box.json("task", "view", str(task))["status"] == "complete"


# -- words of commands -------------------------------------------------------------------------------------


def test_amounts_and_states_are_worded_alike() -> None:
    assert [dollars(n) for n in (0, 5, 99_999, 10**7)] == [known_dollars(n) for n in (0, 5, 99_999, 10**7)]
    one = {"state": "skipped", "retry_s": 12.3, "failures": 3, "problem": "oops"}
    assert state(one) == "left alone for 12 s after 3 failures: oops" and state({"state": "ok"}) == "ok"
    found = {"day_usd": 0.5, "month_usd": 2, "day_tokens": 70, "limits": {"day_usd": 1.0, "day_tokens": 100}}
    assert spent(found) == "spent $0.50 of $1.00 today, $2.00 this month, 70 of 100 tokens today"


def test_the_status_line_names_who_is_left_alone_and_what_is_spent() -> None:
    remote = {"providers": [{"name": "a", "state": "skipped"}, {"name": "b", "state": "ok"}], "spending": {"limits": {}}}
    assert remote_words(remote) == [(" · a left alone", "$warning")] and remote_words({}) == []
    assert remote_words({"spending": {"day_usd": 0.5, "limits": {"day_usd": 2}}}) == [" · $0.50 of $2.00 today"]


def test_the_price_list_is_part_of_the_package() -> None:
    assert (Path(__file__).parents[2] / "appliance/models/prices.toml").exists()
