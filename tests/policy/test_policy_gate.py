"""The policy in force: sessions with their own, groups, audit rows, and reloading that keeps the old one on failure."""

import threading

import pytest

from appliance.errors import ConfigError, DeadlineExceeded, NotFound, OwlError, Unavailable
from appliance.policy import policy_file
from appliance.policy.audit_log import AuditQuery, Ledger
from appliance.policy.gate import Gate
from appliance.policy.mounts import MountRule, Who
from appliance.policy.rules import Lists, Mounts, Policy, PolicyRequest, Runtime, Runtimes, Usage, WantedFolder
from appliance.store.database import Store

ASKED = PolicyRequest("exec", Who("ada", role="chat"), session="local:ada", run="r1", command="ls")


@pytest.fixture
def store(tmp_path):
    made = Store.create(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def ledger(store):
    return Ledger(store)


@pytest.fixture
def file(tmp_path):
    """A policy file, and how it is loaded."""
    path = tmp_path / "policy.toml"
    path.write_text("[quotas]\nmax_cpus = 2")
    return path


@pytest.fixture
def gate(store, ledger, file):
    return Gate(store, ledger, lambda: policy_file.load(file))


def rows(ledger, **asked):
    return [(line.kind, line.severity, line.rule) for line in reversed(ledger.listing(AuditQuery(**asked)))]


# -- audit -------------------------------------------------------------------------------------------


@pytest.mark.covers("A-031", "A-039", "A-047")
def test_an_allowed_request_is_written_down_with_its_runtime(gate, ledger):
    asked = PolicyRequest("exec", session="s", run="r", command="ls", runtime=Runtime("python", "3.11", "ab"))
    gate.judge(asked).require()
    (line,) = ledger.listing()
    assert (line.kind, line.session, line.run, line.actor) == ("policy_allowed", "s", "r", "exec")
    assert {"command": "ls", "runtime": "python", "version": "3.11", "sha256": "ab"}.items() <= line.detail.items()


@pytest.mark.covers("A-047", "A-149")
def test_a_refused_request_leaves_nothing_but_its_audit_rows(gate, ledger, tmp_path):
    before = set(tmp_path.glob("*[!lm]"))  # the database's -wal and -shm come and go
    found = gate.judge(PolicyRequest("exec", session="s", command="sudo ls", usage=Usage(cpus=3)))
    assert not found.is_allowed and set(tmp_path.glob("*[!lm]")) == before
    assert rows(ledger) == [("policy_denied", "warning", "quota.cpu.max"), ("policy_denied", "warning", "command.blocked")]
    assert ledger.listing()[0].detail["command"] == "sudo ls"


@pytest.mark.covers("A-048", "A-063")
def test_every_mount_decision_is_written_down(store, ledger, tmp_path):
    for name in ("a", "b", "shut", ".ssh"):
        (tmp_path / name).mkdir()
    rules = (MountRule(f"{tmp_path}/a"), MountRule(f"{tmp_path}/shut", "denied"))
    gate = Gate(store, ledger, lambda: Policy(mounts=Mounts(rules=rules)))
    for name in ("a", "b", "shut", ".ssh"):
        gate.judge(PolicyRequest("exec", mounts=(WantedFolder(f"{tmp_path}/{name}", is_writable=True),)))
    assert rows(ledger, kind="mount_") == [
        ("mount_allowed", "info", ""),
        ("mount_denied", "warning", "mount.bind.source_not_allowed"),
        ("mount_violation", "error", "mount.bind.denied"),
        ("mount_violation", "error", "mount.bind.blocked"),
    ]
    assert rows(ledger, rule="downgraded") == [("policy_warning", "info", "mount.bind.downgraded")]
    (allowed,) = ledger.listing(AuditQuery(kind="mount_allowed"))
    assert allowed.detail["source"] == f"{tmp_path}/a" and allowed.detail["is_writable"] is False


@pytest.mark.covers("A-033", "A-063", "E-296")
def test_permissive_writes_down_what_it_lets_pass(store, ledger, tmp_path):
    gate = Gate(store, ledger, lambda: Policy("permissive"))
    asked = PolicyRequest("exec", usage=Usage(cpus=8), mounts=(WantedFolder(str(tmp_path)),))
    assert gate.judge(asked).require().is_allowed
    assert rows(ledger)[:2] == [("mount_violation", "error", "mount.bind.disabled"), ("policy_violation", "error", "quota.cpu.max")]


def test_a_refused_tool_is_written_down(store, ledger):
    gate = Gate(store, ledger, lambda: Policy(tools_deny=("exec",)))
    assert not gate.check(gate.policy, "exec", "chat", "s", "r").allowed and gate.check(gate.policy, "read").allowed
    (line,) = ledger.listing()
    assert (line.kind, line.rule, line.actor, line.session, line.run) == ("policy_denied", "tools.deny: exec", "exec", "s", "r")


# -- groups ------------------------------------------------------------------------------------------


@pytest.mark.covers("A-049", "A-052")
def test_groups_come_from_whoever_knows_them(store, ledger, tmp_path):
    rules = Policy(mounts=Mounts(rules=(MountRule(str(tmp_path), group="birds"),)))
    gate = Gate(store, ledger, lambda: rules, groups={"ada": ["birds"], "bob": []}.__getitem__)
    asked = (WantedFolder(str(tmp_path)),)
    assert gate.judge(PolicyRequest("t", Who("ada"), mounts=asked)).is_allowed
    assert not gate.judge(PolicyRequest("t", Who("bob"), mounts=asked)).is_allowed


@pytest.mark.covers("A-049")
def test_somebody_whose_groups_nobody_can_say_has_none(store, ledger, tmp_path):
    def broken(user):
        raise OwlError("the directory is down")

    gate = Gate(store, ledger, lambda: Policy(mounts=Mounts(rules=(MountRule(str(tmp_path), group="birds"),))), groups=broken)
    found = gate.judge(PolicyRequest("t", Who("ada"), mounts=(WantedFolder(str(tmp_path)),)))
    assert not found.is_allowed and [w.rule for w in found.warnings] == ["groups.unknown"]
    assert ("policy_warning", "warning", "groups.unknown") in rows(ledger)
    assert gate.judge(PolicyRequest("t", Who("ada"), command="ls")).is_allowed


# -- sessions ----------------------------------------------------------------------------------------


@pytest.mark.covers("A-045", "E-307")
def test_session_policy_holds_in_its_session_until_it_is_lifted(gate, ledger, store, file):
    denied = "[commands]\nblocked = ['ls']\n[tools]\ndeny = ['exec']"
    gate.set_session("local:ada", denied, "ada")
    assert not gate.judge(ASKED).is_allowed and not gate.check(gate.policy, "exec", session="local:ada").allowed
    assert gate.judge(PolicyRequest("exec", session="local:bob", command="ls")).is_allowed
    assert gate.of("local:ada").quotas.max_cpus == 4  # single values always replace
    other = Gate(store, ledger, lambda: policy_file.load(file))  # another process, or after a restart
    assert not other.judge(ASKED).is_allowed
    assert [(s.session, s.document, s.set_by) for s in other.sessions()] == [("local:ada", denied, "ada")]
    gate.set_session("local:ada", 'mode = "disabled"', "ada")
    assert other.judge(ASKED).is_allowed and other.check(other.policy, "exec", session="local:ada").allowed
    gate.lift_session("local:ada", "ada")
    assert gate.of("local:ada") == gate.policy and gate.of("local:ada").quotas.max_cpus == 2
    assert [kind for kind, _, _ in rows(ledger, kind="policy_changed")] == ["policy_changed"] * 3
    with pytest.raises(NotFound, match="no policy of its own"):
        gate.lift_session("local:ada", "ada")


@pytest.mark.covers("A-045")
def test_session_policy_may_be_looser_and_follows_a_reload(gate, file):
    gate.set_session("s", "[commands]\nblocked = ['ls']", "ada")
    assert gate.of("s").tools_deny == ()
    file.write_text("[tools]\ndeny = ['exec']")
    gate.reload()
    assert gate.of("s").tools_deny == ("exec",) and gate.of("s").commands == ("ls",)
    strict = Policy(tools_deny=("exec",))
    gate.set_session("s", "[tools]\ndeny = ['other']", "ada")
    assert gate.check(strict, "exec", session="s").allowed and not gate.check(strict, "exec").allowed


def test_bad_session_policy_is_refused_whole(gate):
    with pytest.raises(ConfigError, match="policy of session s.*unknown key mood"):
        gate.set_session("s", "mood = 1", "ada")
    assert gate.sessions() == [] and gate.of("s") == gate.policy


def test_many_sessions_are_not_all_kept_made_up(gate):
    for number in range(70):
        gate.set_session(f"s{number}", f"[commands]\nblocked = ['c{number}']", "ada")
    assert [gate.of(f"s{n}").commands for n in range(70)] == [(f"c{n}",) for n in range(70)]


# -- reloading ---------------------------------------------------------------------------------------


@pytest.mark.covers("A-046")
def test_reload_takes_a_changed_file_into_use_and_tells_everybody(gate, file, ledger):
    told = []
    gate.tell(told.append)
    assert (gate.reload(), gate.state) == ("unchanged", "idle")
    file.write_text("[quotas]\nmax_cpus = 3")
    assert gate.reload() == "reloaded" and gate.policy.quotas.max_cpus == 3
    assert [p.quotas.max_cpus for p in told] == [2, 3]
    assert rows(ledger, kind="policy_reload") == [("policy_reload", "info", "")] * 2


@pytest.mark.covers("A-046", "E-305")
@pytest.mark.parametrize("text", ["[quotas", "", " ", "mode = 'lax'", "[quotas]\nmax_pids = 0"])
def test_reload_of_a_bad_file_keeps_the_old_policy(gate, file, ledger, text):
    file.write_text(text)
    with pytest.raises(ConfigError):
        gate.reload()
    assert gate.policy.quotas.max_cpus == 2 and gate.state == "idle"
    assert rows(ledger, kind="policy_reload") == [("policy_reload", "error", "")]


@pytest.mark.covers("A-046", "E-305")
@pytest.mark.parametrize("error", [OwlError("no"), ValueError("no"), ZeroDivisionError("no")])
def test_one_who_does_not_accept_it_keeps_the_old_policy_for_all(gate, file, error):
    told, later = [], []

    def refuse(new):
        if new.quotas.max_cpus == 3:
            raise error

    gate.tell(told.append)
    gate.tell(refuse)
    gate.tell(later.append)
    file.write_text("[quotas]\nmax_cpus = 3")
    with pytest.raises(OwlError, match="no"):
        gate.reload()
    assert gate.policy.quotas.max_cpus == 2 and later == []
    assert [p.quotas.max_cpus for p in told] == [3, 2]  # told of the new one, then of the old one again


@pytest.mark.covers("A-046", "E-305")
def test_reload_during_a_reload_is_skipped(gate, file):
    inside, go_on, results = threading.Event(), threading.Event(), []

    def slow(new):
        inside.set()
        go_on.wait(30)

    gate.tell(slow)
    file.write_text("[quotas]\nmax_cpus = 3")
    thread = threading.Thread(target=lambda: results.append(gate.reload()))
    thread.start()
    assert inside.wait(30) and gate.state == "reloading"
    assert gate.reload() == "skipped" and gate.policy.quotas.max_cpus == 2
    go_on.set()
    thread.join(60)
    assert results == ["reloaded"] and gate.policy.quotas.max_cpus == 3 and gate.state == "idle"


@pytest.mark.covers("A-046")
def test_reload_that_takes_too_long_keeps_the_old_policy_for_good(store, ledger, file):
    gate, go_on, told = Gate(store, ledger, lambda: policy_file.load(file), limit_s=0.05), threading.Event(), []
    done = threading.Event()
    gate.tell(told.append)
    gate.tell(lambda new: (go_on.wait(30), done.set() if new.quotas.max_cpus == 2 else None))
    file.write_text("[quotas]\nmax_cpus = 3")
    with pytest.raises(DeadlineExceeded, match="the old one stays"):
        gate.reload()
    assert gate.policy.quotas.max_cpus == 2 and gate.state == "idle"
    go_on.set()
    assert done.wait(60), "who was told of the new one is told of the old one again"
    assert gate.policy.quotas.max_cpus == 2
    assert rows(ledger, kind="policy_reload") == [("policy_reload", "error", "")]


@pytest.mark.covers("A-046")
def test_stopped_gate_reloads_no_more_and_still_judges(gate):
    gate.stop()
    assert gate.state == "stopped"
    with pytest.raises(Unavailable):
        gate.reload()
    assert gate.judge(ASKED).is_allowed and gate.state == "stopped"


@pytest.mark.covers("A-277")
def test_gate_does_not_begin_with_a_bad_policy(store, ledger, file):
    file.write_text("[quotas")
    with pytest.raises(ConfigError, match="not TOML"):
        Gate(store, ledger, lambda: policy_file.load(file))


def test_role_list_holds_at_the_gate(store, ledger):
    gate = Gate(store, ledger, lambda: Policy(roles={"chat": Lists(deny=("exec",))}))
    assert not gate.check(gate.policy, "exec", "chat").allowed and gate.check(gate.policy, "exec", "coder").allowed


@pytest.mark.covers("A-039")
def test_runtime_is_known_by_what_is_on_the_disk(store, ledger, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a")
    two.write_text("b")
    gate = Gate(store, ledger, Policy)
    found = gate.measure("tools", "1", [one, two])
    assert len(found.sha256) == 64 and gate.measure("tools", "1", [one, two]) == found
    assert gate.judge(PolicyRequest("exec", runtime=found)).is_allowed
    pinned = Gate(store, ledger, lambda: Policy(runtime=Runtimes(pins={"tools": found.sha256})))
    assert pinned.judge(PolicyRequest("exec", runtime=found)).is_allowed
    two.write_text("changed")
    changed = gate.measure("tools", "1", [one, two])
    assert changed.sha256 != found.sha256
    assert [v.rule for v in pinned.judge(PolicyRequest("exec", runtime=changed)).violations] == ["runtime.mismatch"]
    with pytest.raises(Unavailable, match="gone: No such file"):
        gate.measure("tools", "1", [tmp_path / "gone"])
