"""What a reload says it has taken is in force; what it has not taken is named until it is."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded import Recording, keys, recorded
from stores import new_home

from appliance.errors import OwlError, Refused
from appliance.models.pool import Pool
from appliance.runtime import config
from appliance.runtime.paths import Home
from appliance.service.core import Core

SERVED = (
    "api.rpc_timeout_ms",
    "channels.connectors",
    "channels.web.enabled",
)  # the daemon reads them when it begins to serve
NAMING = "agents"  # the broker only lists a provider that a role names; it answers for it either way


@pytest.fixture
def core(tmp_path: Path, runtime: Path) -> Iterator[Core]:
    """A core whose reads of the configuration are noted; nothing runs."""
    home = Home(tmp_path / "core")
    new_home(home)
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    made = Core(home, environ, live=Recording(home, environ))
    yield made
    made.close("the test has ended")


@pytest.mark.covers("A-263")
def test_each_key_is_marked_by_how_its_change_comes_into_force(core: Core, home: Home) -> None:
    live = core.live
    assert isinstance(live, Recording)
    core.indexer.index_pending()  # it keeps its table of keys, and reads that when it works
    built = set(live.read_first)
    core.reload()
    read = recorded(config.Config(), asked := set())
    pool = Pool(home, read)
    pool.remotes.status(), pool.remotes.close()
    for key in keys():
        known = config.described(key)
        assert not (known.is_broker and known.is_restart), f"{key} waits for one thing, not for two"
        if known.is_restart:
            assert key in built or key in SERVED or key.startswith(("tools.web_search.", "channels.web.")), (
                f"{key} is marked restart without need"
            )
        elif known.is_broker:
            continue
        else:
            is_renewed = key not in built or key in live.read_again
            assert is_renewed, f"{key} is read once, when the core is built: mark it restart, or set it in Core.reload"
            assert key not in asked or key == NAMING, f"{key} is read by the broker: mark it broker"


def test_what_the_broker_is_built_with_is_marked_so(home: Home) -> None:
    settings = recorded(config.Config(), read := set())
    pool = Pool(home, settings)
    with pytest.raises(Exception, match="no model"):
        pool.plan()
    pool.remotes.status(), pool.remotes.close()
    assert read and all(config.described(key).is_broker for key in read - {NAMING}), read


def test_a_key_that_waits_is_named_by_each_reload_until_it_is_back(core: Core) -> None:
    core.home.config.write_text("[store]\nmmap_mb = 5\n[runs]\nmax_turns = 7\n")
    done = core.reload()
    assert (done.changed, done.pending.restart, done.pending.broker) == ("runs.max_turns", ("store.mmap_mb",), ())
    again = core.reload()
    assert (again.changed, again.pending.restart) == ("", ("store.mmap_mb",))
    assert core.status()["pending"] == {"broker": "", "restart": "store.mmap_mb"}
    core.home.config.write_text("")
    assert core.reload().changed == "runs.max_turns, store.mmap_mb" and core.pending().restart == ()


def test_keys_of_a_broker_that_does_not_run_wait_for_nothing(core: Core) -> None:
    core.home.config.write_text("[models]\nlocal_only = false\nthreads = 2\n[prices.m]\ninput = 1\n")
    done = core.reload()
    assert done.changed == "models.threads, models.local_only, prices.m" and done.pending.text() == ""


@pytest.mark.covers("A-263", "A-043")
def test_a_reload_that_fails_leaves_no_part_of_it_in_force(core: Core) -> None:
    """Here networks of the new configuration, whose policy cannot be read."""
    core.home.config.write_text('[policy]\npath = "policy.toml"\n[tools.web]\nprivate_networks = ["127.0.0.0/8"]\n')
    policy = core.home.root / "policy.toml"
    policy.write_text("mode = 'no such mode'\n")
    with pytest.raises(OwlError):
        core.reload()
    assert core.live.current.tools.web.private_networks == ()
    with pytest.raises(Refused, match="loopback"):
        core.web.fetch.get("http://127.0.0.1/", session="s", timeout_s=5)
    policy.write_text("mode = 'strict'\n")
    assert core.reload().changed == "policy.path, tools.web.private_networks"


@pytest.mark.covers("A-263")
def test_reloads_at_once_leave_what_the_file_says(core: Core) -> None:
    """Among them many that fail: none of these brings back what another one has replaced."""
    policy, errors = core.home.root / "policy.toml", list[str]()

    def reload() -> None:
        for _ in range(4):
            try:
                core.reload()
            except OwlError as error:
                errors.append(error.message)

    core.home.config.write_text("[models]\nlocal_only = false\n")
    core.reload()
    for number in range(4):
        policy.write_text("mode = 'no such mode'\n" if number % 2 else "mode = 'strict'\n")
        core.home.config.write_text(
            f"[policy]\npath = 'policy.toml'\n[models]\nlocal_only = true\n[runs]\nmax_turns = {number + 5}\n"
        )
        threads = [threading.Thread(target=reload) for _ in range(4)]
        for thread in threads:
            thread.start()
        policy.write_text("mode = 'strict'\n")
        done = core.reload()  # the last word of a person: it holds whatever the others do
        for thread in threads:
            thread.join()
        assert core.live.current.models.local_only and core.live.current.runs.max_turns == number + 5, (done, errors)
