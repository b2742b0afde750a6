"""The local engine with the real model: prefixes that survive restarts, turns that pause, damage that is survived."""

import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from model_fixtures import shallow_file, shallow_home  # noqa: F401
from test_gguf import model as tiny_model
from test_gguf import tensor

from appliance.clock import CancelToken
from appliance.errors import Cancelled, OwlError
from appliance.models.cpu_scheduler import QUANTUM_S
from appliance.models.pool import Pool
from appliance.providers import gguf
from appliance.providers.llama import Llama, Options, is_bound_to_window
from appliance.providers.llama_library import BATCH, OURS, LoadedModel, library
from appliance.records import Ask, Finish, Message, Part, Piece, Route
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config, ModelSettings

pytestmark = pytest.mark.model
ROUTE = Route("local", "llama", "smollm2", 2048, "grammar")
RULES = " ".join(f"Rule {n}: an owl that sees {n} mice tells of {n * 3} of them, and sleeps." for n in range(1, 5))
SYSTEM = (Part("rules", f"You are Owlbox, an owl in a box. {RULES}"),)
BOUND_S = 240.0


def is_ours() -> bool:
    return OURS.encode() in library().api.llama_print_system_info()


@pytest.fixture
def file(shallow_file: Path, tmp_path: Path) -> Path:  # noqa: F811
    """The model in a folder of its own, so that each test has its own prefix states."""
    path = tmp_path / "models" / shallow_file.name
    path.parent.mkdir()
    os.link(shallow_file, path)
    return path


def opened(file: Path, **options: Any) -> Llama:
    return Llama(file, Options(**{"context": 2048, "threads": 1, "seed": 7, **options}))


def ask(words: str = "What do owls eat?", **more: Any) -> Ask:
    return Ask(**{"system": SYSTEM, "messages": (Message("user", words),), "temperature": 0.0, "max_tokens": 4, **more})


def run(llama: Llama, request: Ask) -> tuple[str, Finish]:
    *pieces, finish = llama.generate(ROUTE, request, threading.Event())
    assert isinstance(finish, Finish)
    return "".join(p.text for p in pieces if isinstance(p, Piece)), finish


def first_run(file: Path, request: Ask | None = None, **options: Any) -> tuple[str, Finish]:
    """An answer of a process that has just begun."""
    llama = opened(file, **options)
    try:
        return run(llama, request or ask())
    finally:
        llama.close()


@pytest.fixture(scope="module")
def cold(shallow_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Finish, Path]:  # noqa: F811
    """What a process that knows nothing answers, and the state it leaves."""
    path = tmp_path_factory.mktemp("cold") / "models" / shallow_file.name
    path.parent.mkdir()
    os.link(shallow_file, path)
    return *first_run(path), the_state(path)


def with_state(file: Path, state: Path, data: bytes | None = None) -> Path:
    """The state that another process left for this model, or what became of it."""
    path = file.parent / "prefix" / state.name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(state.read_bytes() if data is None else data)
    return path


def the_state(file: Path) -> Path:
    (path,) = (file.parent / "prefix").glob("*.state")
    return path


# -- prefix states -----------------------------------------------------------------------------------


def test_after_a_restart_only_what_follows_the_system_text_is_evaluated(file: Path, cold: tuple[str, Finish, Path]) -> None:
    text, first, state = cold
    with_state(file, state)
    warm, second = first_run(file)
    assert first.evaluated_tokens == first.prompt_tokens > 80
    assert warm == text and second.evaluated_tokens < 20
    assert first_run(file, ask("And where do they live?"))[1].evaluated_tokens < 20
    assert state.stat().st_mode & 0o777 == 0o600


def test_a_system_text_that_changed_at_its_end_keeps_its_beginning(file: Path, cold: tuple[str, Finish, Path]) -> None:
    _, first, state = cold
    with_state(file, state)
    more = (*SYSTEM, Part("notes", "Ann is away today."))
    second = first_run(file, ask(system=more))[1]
    assert 0 < second.evaluated_tokens < first.evaluated_tokens / 3
    assert len(list((file.parent / "prefix").glob("*.state"))) == 2


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    place = len(data) * 3 // 4
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("damage", [truncated, flipped])
def test_a_damaged_state_is_rebuilt_and_never_reaches_llama_cpp(
    file: Path, cold: tuple[str, Finish, Path], damage: Callable[[bytes], bytes]
) -> None:
    text, first, state = cold
    with_state(file, state, damage(state.read_bytes()))
    again, second = first_run(file)
    assert (again, second.evaluated_tokens) == (text, first.evaluated_tokens)
    assert first_run(file)[1].evaluated_tokens < 20  # made anew


def test_a_state_of_another_cache_type_or_file_is_not_used(file: Path, cold: tuple[str, Finish, Path]) -> None:
    _, first, state = cold
    with_state(file, state)
    quantised, second = first_run(file, cache_type="q8_0")
    assert quantised and second.evaluated_tokens == first.evaluated_tokens
    assert first_run(file, cache_type="q8_0")[1].evaluated_tokens < 20
    copy = file.with_name("copy.gguf")
    shutil.copy(file, copy)
    os.utime(copy, (1, 1))
    assert first_run(copy)[1].evaluated_tokens == first.evaluated_tokens


@pytest.mark.skipif(not is_ours(), reason="llama.cpp was built without image-build/llama_patch.py: make install")
def test_numbers_depend_neither_on_other_conversations_nor_on_how_many_tokens_are_evaluated_at_once(file: Path) -> None:
    """From 64 tokens on llama.cpp computes in blocks, and from 512 in the window on it divides one token among threads."""
    loaded = LoadedModel(file, 768, 2, "f16", lambda: False)
    tokens = [(7 * i + 1) % loaded.vocabulary_size for i in range(450)]
    behind = []
    for others in (0, 3, 447):
        for start in range(0, others, BATCH):
            loaded.evaluate(tokens[start : min(others, start + BATCH)], 1, start, rows=0)
        loaded.evaluate(tokens[:66], 0, 0, rows=1)
        behind.append(loaded.copy_row(-1))
        if others < 447:
            loaded.clear(0), loaded.clear(1)
    loaded.evaluate(tokens[66:69], 0, 66, rows=3)
    together = [loaded.copy_row(row) for row in (-3, -2, -1)]
    loaded.cut(0, 66)
    alone = [loaded.evaluate(tokens[n : n + 1], 0, n, rows=1) or loaded.copy_row(-1) for n in (66, 67, 68)]
    loaded.close()
    assert len({*behind}) == 1
    assert alone == together


def test_one_token_at_a_time_where_llama_cpp_divides_it_among_threads(file: Path) -> None:
    one, two = (LoadedModel(file, 512, threads, "f16", lambda: False) for threads in (1, 2))
    assert one.alike() > 1 and two.alike() == (one.alike() if two.is_ours else 1)
    one.close(), two.close()


def test_states_are_bounded_on_disk_and_none_are_kept_when_told_so(file: Path) -> None:
    first_run(file, prefix_mb=0)
    assert not list((file.parent / "prefix").glob("*"))
    first_run(file, ask(system=(Part("rules", RULES * 9),)))
    old = the_state(file)
    assert 1_000_000 < old.stat().st_size < 2_000_000, "there is room for one"
    first_run(file, ask(system=(Part("rules", f"Or: {RULES * 9}"),)), prefix_mb=2)
    assert the_state(file) != old


def test_roles_with_their_own_texts_have_their_own_states(file: Path) -> None:
    roles = [(Part("rules", f"{name} {RULES}"),) for name in ("Researcher.", "Coder.")]
    for limit in (200, 20):
        llama = opened(file)
        assert all(run(llama, ask(system=role))[1].evaluated_tokens < limit for role in roles)
        llama.close()
    assert len(list((file.parent / "prefix").glob("*.state"))) == 2


def test_a_model_that_reads_otherwise_in_a_longer_window_is_known(tmp_path: Path) -> None:
    for name, is_bound in (("rope_factors_long.weight", True), ("blk.0.attn_q.weight", False)):
        path = tmp_path / "owl.gguf"
        path.write_bytes(tiny_model(tensors=[tensor(name, 64, 0, 0)]))
        assert is_bound_to_window(gguf.read(path)) is is_bound


def test_a_quantised_cache_needs_less_memory(file: Path) -> None:
    full, half = opened(file), opened(file, cache_type="q8_0")
    spared = full.memory_bytes - half.memory_bytes
    assert spared == pytest.approx(full.header.token_bytes * 2048 * 30 / 64, rel=0.01)


# -- turns -------------------------------------------------------------------------------------------


@contextmanager
def opened_pool(file: Path, context: int = 2048) -> Iterator[Pool]:
    made = Pool(Home(file.parent.parent), Config(models=ModelSettings(context=context, threads=1)))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def pool(file: Path) -> Iterator[Pool]:
    with opened_pool(file) as made:
        yield made


STORY = "Write a long story about an owl, a mouse and the moon. " * 8


def background(**more: Any) -> Ask:
    given = {"is_background": True, "slot": "worker", "max_tokens": 24, "system": (Part("rules", "Write."),), **more}
    return ask(STORY, **given)


class Job:
    """A generation in a thread of its own."""

    def __init__(self, pool: Pool, request: Ask) -> None:
        self.cancel, self.text, self.begun = CancelToken(), "", threading.Event()
        self.finish: Finish | None = None
        self.error: OwlError | None = None
        self._thread = threading.Thread(target=self._work, args=(pool, request), daemon=True)
        self._thread.start()

    def _work(self, pool: Pool, request: Ask) -> None:
        try:
            for piece in pool.generate("local", request, self.cancel):
                if isinstance(piece, Finish):
                    self.finish = piece
                else:
                    self.text += piece.text
                    self.begun.set()
        except OwlError as error:
            self.error = error
        self.begun.set()

    def result(self) -> str:
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive() and self.error is None and self.finish is not None
        return self.text


def answer(pool: Pool, request: Ask) -> Finish:
    finish = list(pool.generate("local", request, CancelToken()))[-1]
    assert isinstance(finish, Finish)
    return finish


@pytest.fixture(scope="module")
def undisturbed(shallow_file: Path, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: F811
    """What the job says when nobody interrupts it."""
    path = tmp_path_factory.mktemp("undisturbed") / "models" / shallow_file.name
    path.parent.mkdir()
    os.link(shallow_file, path)
    with opened_pool(path) as pool:
        return Job(pool, background()).result()


@pytest.mark.parametrize("is_writing", [False, True])
def test_background_work_that_was_interrupted_says_what_it_would_have_said(file: Path, undisturbed: str, is_writing: bool) -> None:
    with opened_pool(file) as pool:
        answer(pool, ask(slot="chat"))
        job = Job(pool, background())
        if is_writing:
            job.begun.wait(BOUND_S)
        for n in range(2):
            assert answer(pool, ask(f"{n}?", slot="chat")).output_tokens
            assert job.finish is None, "the person was served while the job was under way"
        assert job.result() == undisturbed


def test_where_memory_is_short_a_job_shares_the_window_and_survives_being_pushed_out(file: Path) -> None:
    memory_mb = round(opened(file, context=512).memory_bytes / 1_000_000) + 1
    models = ModelSettings(context=512, threads=1, memory_mb=memory_mb)
    pool = Pool(Home(file.parent.parent), Config(models=models))
    job = Job(pool, background())
    job.begun.wait(BOUND_S)
    owl = "The owl looks at the moon and says nothing. " * 36
    finish = answer(pool, ask(f"{owl} Why?", slot="chat", system=()))
    assert finish.prompt_tokens > 380 and job.finish is None
    assert len(job.result()) > 50
    pool.close()


def test_background_work_leaves_every_conversation_its_sequence(pool: Pool) -> None:
    chats = [f"chat{n}" for n in range(4)]
    for chat in chats:
        answer(pool, ask(slot=chat))
    for n in range(5):
        answer(pool, ask(f"Job {n}.", slot=f"job{n}", is_background=True, max_tokens=2))
    assert [answer(pool, ask(slot=chat)).evaluated_tokens for chat in chats] == [0, 0, 0, 0]


def test_two_people_are_answered_side_by_side(pool: Pool) -> None:
    long = Job(pool, ask("Tell me everything about numbers.", slot="chat0", person="ann", max_tokens=200))
    long.begun.wait(BOUND_S)
    short = Job(pool, ask("Tell me about the number 1.", slot="chat1", person="bob", max_tokens=4))
    assert short.result()
    assert long.finish is None
    assert len(long.result()) > 200


def test_a_job_that_is_cancelled_while_it_rests_ends_at_once(pool: Pool) -> None:
    job = Job(pool, background(temperature=0.0))
    job.begun.wait(BOUND_S)
    long = Job(pool, ask("Tell me everything about numbers.", slot="chat", max_tokens=100))
    long.begun.wait(BOUND_S)
    job.cancel.set()
    job._thread.join(BOUND_S)
    assert isinstance(job.error, Cancelled)
    assert long.finish is None
    long.result()


def test_cancelled_requests_leave_nothing_behind(file: Path) -> None:
    llama = opened(file)
    before = run(llama, ask())[0]

    def stop_after(steps: int) -> None:
        cancel = threading.Event()
        request = ask(f"{steps} owls.", slot=f"s{steps % 9}", max_tokens=50, system=())
        with pytest.raises(Cancelled):
            for count, _ in enumerate(llama.generate(ROUTE, request, cancel)):
                if count >= steps % 3:
                    cancel.set()

    for n in range(9):
        stop_after(n)
    settled = resident_kb()
    for n in range(15):
        stop_after(n)
    assert resident_kb() - settled < 6_000
    assert run(llama, ask())[0] == before
    llama.close()


def resident_kb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


# -- damage ------------------------------------------------------------------------------------------


def test_a_model_replaced_while_loaded_is_taken_up_with_the_next_answer(pool: Pool, file: Path) -> None:
    job = Job(pool, background(max_tokens=16))
    job.begun.wait(BOUND_S)
    fresh = file.with_name("fresh.part")
    shutil.copy(file, fresh)
    os.replace(fresh, file)
    chat = Job(pool, ask(slot="chat"))
    assert chat.result()
    job._thread.join(BOUND_S)
    # The job either ended before, or was sent away: two models do not fit. Never a crash.
    assert job.finish is not None or (job.error is not None and job.error.outcome == "busy")
    assert answer(pool, background(max_tokens=4)).output_tokens > 0


def test_a_model_replaced_while_one_waits_is_not_taken_from_one_who_rests(pool: Pool, file: Path) -> None:
    long = ask("Tell me everything about numbers.", slot="chat0", person="ann", max_tokens=40)
    pieces = pool.generate("local", long, CancelToken())
    next(pieces)
    other = Job(pool, ask(slot="chat1", person="bob"))
    pause = threading.Event()
    while not pool._scheduler._waiting:
        pause.wait(0.01)
    shutil.copy(file, file.with_name("fresh.part"))
    os.replace(file.with_name("fresh.part"), file)
    pause.wait(QUANTUM_S)  # from here on ann rests for bob, in the middle of the old model
    *_, finish = pieces
    assert isinstance(finish, Finish) and finish.output_tokens == 40
    assert other.result()


def test_a_file_that_comes_leaves_the_model_and_its_work_alone(pool: Pool, file: Path) -> None:
    answer(pool, ask(slot="chat"))
    job = Job(pool, background(max_tokens=16))
    job.begun.wait(BOUND_S)
    os.utime(shutil.copy(file, file.with_name("older.gguf")), (1, 1))
    assert pool.status()["model"] == file.stem
    assert answer(pool, ask(slot="chat")).evaluated_tokens == 0
    assert job.result()


def test_too_little_memory_is_an_error_and_not_the_end(file: Path) -> None:
    program = textwrap.dedent(f"""
        import resource, threading
        from pathlib import Path
        from appliance.errors import OwlError
        from appliance.providers.llama_library import library
        from appliance.providers.llama import Llama, Options
        from appliance.records import Ask, Message, Route
        library()
        import numpy
        route = Route("local", "llama", "m", 2048, "grammar")
        ask = Ask((), (Message("user", "hi"),), max_tokens=2)
        llama = Llama(Path({str(file)!r}), Options(context=2048, threads=1))
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 60_000_000, -1))
        try:
            list(llama.generate(route, ask, threading.Event()))
        except OwlError as error:
            print(error.outcome, error.message)
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        print(len(list(llama.generate(route, ask, threading.Event()))) > 1)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.strip().splitlines()
    assert first.startswith("unavailable") and second == "True"
