"""The rules of a policy and what they say to requests; the policy file."""

import os

import pytest
from record_tools import replace

from appliance.errors import ConfigError, Refused
from appliance.policy import policy_file
from appliance.policy.mounts import MountRule, Who
from appliance.policy.policy_file import Policy, size_bytes
from appliance.policy.rules import (
    GB,
    MB,
    PERMISSIVE,
    STRICT,
    BuiltinRules,
    Lists,
    Mounts,
    Networks,
    PolicyRequest,
    PolicyVerdict,
    Quotas,
    Runtime,
    Runtimes,
    Security,
    Usage,
    WantedFolder,
    check_sane,
    laid_over,
)

CODER = Who("ada", role="coder", is_admin=True)


@pytest.fixture
def load(tmp_path):
    """Load a policy file with this text."""

    def load(text, **more):
        path = tmp_path / "policy.toml"
        path.write_text(text)
        return policy_file.load(path, **more)

    return load


def ids(judgement):
    return [finding.rule for finding in judgement.violations]


# -- tools by name -----------------------------------------------------------------------------------


@pytest.mark.covers("A-277")
def test_without_a_path_the_default_policy_holds():
    assert policy_file.load(None) == Policy("strict", (), ())
    assert policy_file.load(None).check("shell") == PolicyVerdict(True, "")


TOOLS = ("read_*", "shell"), ("shell", "read_s*")


@pytest.mark.parametrize(
    ("mode", "allow", "deny", "tool", "verdict"),
    [
        ("strict", (), (), "shell", PolicyVerdict(True)),
        ("strict", (), ("shell",), "shell", PolicyVerdict(False, "tools.deny: shell")),
        ("strict", (), ("shell",), "shell2", PolicyVerdict(True)),
        ("strict", *TOOLS, "read_file", PolicyVerdict(True)),
        ("strict", *TOOLS, "shell", PolicyVerdict(False, "tools.deny: shell")),
        ("strict", *TOOLS, "read_secret", PolicyVerdict(False, "tools.deny: read_s*")),
        ("strict", *TOOLS, "write_file", PolicyVerdict(False, "tools.allow: not listed")),
        ("permissive", *TOOLS, "shell", PolicyVerdict(True, "tools.deny: shell")),
        ("permissive", *TOOLS, "write_file", PolicyVerdict(True, "tools.allow: not listed")),
        ("disabled", *TOOLS, "shell", PolicyVerdict(True)),
    ],
)
def test_verdict_on_a_tool(mode, allow, deny, tool, verdict):
    assert Policy(mode, allow, deny).check(tool) == verdict


@pytest.mark.covers("A-032")
@pytest.mark.parametrize(
    ("mode", "is_allowed", "rule"),
    [("strict", False, "network.proxy.disabled"), ("permissive", True, "network.proxy.disabled"), ("disabled", True, "")],
)
def test_a_tool_that_reaches_the_web_needs_a_network(mode, is_allowed, rule):
    off = Policy(mode, network=Networks(proxy=False))
    assert off.check("fetch_url", network="proxy") == PolicyVerdict(is_allowed, rule) and off.check("read_file") == PolicyVerdict(
        True
    )
    assert Policy(mode).check("fetch_url", network="proxy") == PolicyVerdict(True)


@pytest.mark.covers("A-131")
def test_role_has_its_own_list_of_tools():
    rules = Policy(roles={"researcher": Lists(("read_*",)), "chat": Lists(deny=("shell",))})
    assert rules.check("shell", "researcher") == PolicyVerdict(False, "roles.researcher.allow: not listed")
    assert rules.check("shell", "chat") == PolicyVerdict(False, "roles.chat.deny: shell")
    assert rules.check("read_file", "researcher").allowed and rules.check("shell", "coder").allowed
    assert replace(rules, mode="permissive").check("shell", "chat") == PolicyVerdict(True, "roles.chat.deny: shell")


# -- judgements --------------------------------------------------------------------------------------


# category: (what is asked for, the rule against it by default)
DENIED = {
    "mounts": (PolicyRequest("t", mounts=(WantedFolder("/srv"),)), "mount.bind.disabled"),
    "quotas": (PolicyRequest("t", usage=Usage(cpus=8)), "quota.cpu.max"),
    "network": (PolicyRequest("t", network="host"), "network.host.disabled"),
    "ipc": (PolicyRequest("t", target="person:bob"), "ipc.deny"),
    "commands": (PolicyRequest("t", command="ls; sudo ls"), "command.blocked"),
}
RULES = Policy(ipc=Lists(deny=("person:*",)))


@pytest.mark.covers("A-031", "A-032", "A-036", "A-149")
@pytest.mark.parametrize(("request_", "rule"), DENIED.values(), ids=DENIED)
def test_every_category_can_deny(request_, rule):
    found = RULES.judge(request_)
    assert ids(found) == [rule] and not found.is_allowed and found.mounts == ()
    with pytest.raises(Refused, match=rf"^{rule.replace('.', '[.]')} \(t\): "):
        found.require()


@pytest.mark.covers("A-033", "E-296")
@pytest.mark.parametrize(("mode", "is_allowed", "rules"), [("strict", False, 1), ("permissive", True, 1), ("disabled", True, 0)])
@pytest.mark.parametrize(("request_", "rule"), DENIED.values(), ids=DENIED)
def test_mode_decides_what_a_violation_does(request_, rule, mode, is_allowed, rules):
    found = replace(RULES, mode=mode).judge(request_)
    assert (found.is_allowed, ids(found)) == (is_allowed, [rule] * rules)


@pytest.mark.covers("A-034", "E-297")
@pytest.mark.parametrize(
    ("count", "end"), [(1, "."), (3, "."), (4, " (and 1 more violation(s))"), (5, " (and 2 more violation(s))")]
)
def test_text_of_a_denial_has_three_violations_and_the_number_of_others(count, end):
    usage = Usage(cpus=8, memory_bytes=9 * GB, swap_bytes=9 * GB, pids=2000, tmp_bytes=GB)
    names = ["cpus", "memory_bytes", "swap_bytes", "pids", "tmp_bytes"][:count]
    found = STRICT.judge(PolicyRequest("exec", usage=Usage(**{name: getattr(usage, name) for name in names})))
    assert len(found.violations) == count and found.text.count("; ") == min(count, 3) - 1
    assert found.text.startswith("quota.cpu.max (exec): 8 CPUs are more than 4")
    assert found.text.endswith(end) if count > 3 else "more violation" not in found.text


@pytest.mark.covers("A-035")
def test_warnings_never_block(tmp_path):
    rules = Policy(mounts=Mounts(rules=(MountRule(str(tmp_path)),)))
    found = rules.judge(PolicyRequest("t", CODER, mounts=(WantedFolder(str(tmp_path), is_writable=True),)))
    assert found.is_allowed and found.violations == () and [w.rule for w in found.warnings] == ["mount.bind.downgraded"]


@pytest.mark.covers("A-036", "A-037")
@pytest.mark.parametrize(
    ("usage", "rule"),
    [
        (Usage(cpus=4), ""),
        (Usage(cpus=4.1), "quota.cpu.max"),
        (Usage(cpus=float("nan")), "quota.cpu.max"),
        (Usage(memory_bytes=8 * GB), ""),
        (Usage(memory_bytes=8 * GB + 1), "quota.memory.max"),
        (Usage(swap_bytes=8 * GB), ""),
        (Usage(swap_bytes=8 * GB + 1), "quota.swap.max"),
        (Usage(pids=1024), ""),
        (Usage(pids=1025), "quota.pids.max"),
        (Usage(tmp_bytes=256 * MB), ""),
        (Usage(tmp_bytes=256 * MB + 1), "quota.tmpfs.max"),
    ],
)
def test_default_limits(usage, rule):
    assert ids(STRICT.judge(PolicyRequest("t", usage=usage))) == ([rule] if rule else [])


def test_lower_limits_hold_for_what_is_asked():
    rules = Policy(quotas=Quotas(min_cpus=0.5, min_memory=MB, max_disk=GB))
    assert ids(rules.judge(PolicyRequest("t", usage=Usage(0.1, 1, disk_bytes=2 * GB)))) == [
        "quota.disk.max",
        "quota.cpu.min",
        "quota.memory.min",
    ]
    assert ids(rules.judge(PolicyRequest("t"))) == []


@pytest.mark.covers("A-037")
@pytest.mark.parametrize(
    ("request_", "rules"),
    [
        (PolicyRequest("t", mounts=(WantedFolder("/srv"),)), ["mount.bind.disabled"]),
        (PolicyRequest("t", mounts=(WantedFolder("data", kind="volume"), WantedFolder("", kind="tmpfs"))), []),
        (PolicyRequest("t", network="host"), ["network.host.disabled"]),
        (PolicyRequest("t", network="proxy"), []),
        (PolicyRequest("t", is_privileged=True), ["security.privileged.disabled"]),
        (PolicyRequest("t", is_root=True), ["security.root.disabled"]),
        (PolicyRequest("t", runtime=Runtime("python", "latest", "ab")), ["image.latest_tag"]),
    ],
)
def test_default_switches(request_, rules):
    assert ids(STRICT.judge(request_)) == rules


@pytest.mark.covers("A-038")
def test_permissive_preset(tmp_path):
    asked = Usage(cpus=16, memory_bytes=16 * GB, swap_bytes=999 * GB, pids=4096)
    rules = replace(PERMISSIVE, mode="strict", mounts=replace(PERMISSIVE.mounts, rules=(MountRule(str(tmp_path)),)))
    fine = PolicyRequest("t", usage=asked, mounts=(WantedFolder(str(tmp_path)),), is_root=True)
    assert PERMISSIVE.mode == "permissive" and ids(rules.judge(fine)) == []
    over = PolicyRequest("t", usage=Usage(17, 17 * GB, pids=4097), network="host", is_privileged=True)
    assert ids(rules.judge(over)) == [
        *("quota.cpu.max", "quota.memory.max", "quota.pids.max"),
        *("network.host.disabled", "security.privileged.disabled"),
    ]


@pytest.mark.covers("A-039")
@pytest.mark.parametrize(
    ("rules", "runtime", "rule"),
    [
        (Runtimes(), Runtime("python"), "runtime.unpinned"),
        (Runtimes(), Runtime("python", "3.11.7"), ""),
        (Runtimes(), Runtime("python", "", "ab"), ""),
        (Runtimes(), Runtime("python", "latest"), "image.latest_tag"),
        (Runtimes(latest=True), Runtime("python", "latest"), "runtime.unpinned"),
        (Runtimes(pinned=False), Runtime("python"), ""),
        (Runtimes(pins={"python": "sha256:AB"}), Runtime("python", "3", "ab"), ""),
        (Runtimes(pins={"python": "cd"}), Runtime("python", "3", "ab"), "runtime.mismatch"),
        (Runtimes(pins={"python": "cd"}), Runtime("python", "3"), "runtime.mismatch"),
        (Runtimes(pins={"perl": "cd"}), Runtime("python", "3", "ab"), ""),
    ],
)
def test_runtime_has_to_be_a_known_one(rules, runtime, rule):
    assert ids(Policy(runtime=rules).judge(PolicyRequest("t", runtime=runtime))) == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("lists", "role", "target", "rule"),
    [
        (Lists(), "chat", "core", ""),
        (Lists(), "chat", "person:ada", "ipc.allow"),
        (Lists(("person:ada",)), "chat", "core", ""),
        (Lists(deny=("core",)), "chat", "core", "ipc.deny"),
        (Lists(("person:*",), ("worker -> *",)), "worker", "core", "ipc.deny"),
        (Lists(("person:*",)), "chat", "person:ada", ""),
        (Lists(("person:*",)), "chat", "broker", "ipc.allow"),
        (Lists(("worker -> *",)), "chat", "person:ada", "ipc.allow"),
        (Lists(("worker -> *",)), "worker", "person:ada", ""),
        (Lists(deny=("worker -> person:*",)), "worker", "person:ada", "ipc.deny"),
        (Lists(("*",), ("worker -> person:*",)), "chat", "person:ada", ""),
        (Lists(("person:*",), ("person:b*",)), "chat", "person:bob", "ipc.deny"),
    ],
)
def test_who_may_send_to_whom(lists, role, target, rule):
    found = Policy(ipc=lists).judge(PolicyRequest("message", Who(role=role), target=target))
    assert ids(found) == ([rule] if rule else [])


# -- folders -----------------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path):
    for name in ("own", "library", "shut", ".ssh"):
        (tmp_path / name).mkdir()
    return tmp_path


def lists(folders, **more):
    rules = [
        MountRule(f"{folders}/own", "readwrite", "project"),
        MountRule(f"{folders}/library"),
        MountRule(f"{folders}/shut", "denied"),
    ]
    return Policy(mounts=Mounts(rules=(*rules, MountRule(f"{folders}/.ssh")), **more))


@pytest.mark.covers("A-048", "A-050", "A-053", "E-298")
@pytest.mark.parametrize(
    ("name", "is_writable", "granted", "rule"),
    [
        ("own", True, True, ""),
        ("own", False, False, ""),
        ("library", True, False, ""),
        ("shut", False, None, "mount.bind.denied"),
        (".ssh", False, None, "mount.bind.blocked"),
        ("other", False, None, "mount.bind.source_not_allowed"),
    ],
)
def test_folder_is_granted_as_it_is_listed(folders, name, is_writable, granted, rule):
    path = f"{folders}/{name}"
    found = lists(folders).judge(PolicyRequest("t", CODER, mounts=(WantedFolder(path, "/mnt/x", is_writable),)))
    assert ids(found) == ([rule] if rule else [])
    assert [(m.source, m.inside, m.is_writable) for m in found.mounts] == ([] if granted is None else [(path, "/mnt/x", granted)])


@pytest.mark.covers("E-298", "A-042")
def test_switches_and_path_lists_come_on_top(folders):
    asked = PolicyRequest("t", CODER, mounts=(WantedFolder(f"{folders}/own"),))
    assert ids(lists(folders, binds=False).judge(asked)) == ["mount.bind.disabled"]
    assert ids(lists(folders, deny=(f"{folders}/o*",)).judge(asked)) == ["mount.path.denied"]
    assert ids(lists(folders, allow=("/elsewhere",)).judge(asked)) == ["mount.path.denied"]
    assert ids(lists(folders, allow=(f"{folders}/*",)).judge(asked)) == []
    off = Policy(mounts=Mounts(volumes=False, tmpfs=False))
    asked = PolicyRequest("t", mounts=(WantedFolder("data", kind="volume"), WantedFolder("", kind="tmpfs")))
    assert ids(off.judge(asked)) == ["mount.volume.disabled", "mount.tmpfs.disabled"]
    assert ids(off.judge(PolicyRequest("t", mounts=(WantedFolder("relative"),)))) == ["mount.bind.blocked"]


@pytest.mark.covers("A-033", "A-053", "A-057")
@pytest.mark.parametrize(("mode", "writable"), [("permissive", False), ("disabled", True)])
def test_secrets_are_left_out_whatever_the_mode(folders, mode, writable):
    rules = replace(lists(folders), mode=mode, ground=BuiltinRules(closed=(f"{folders}/own",)))
    names = ("own", ".ssh", "other")
    found = rules.judge(PolicyRequest("t", CODER, mounts=tuple(WantedFolder(f"{folders}/{n}", is_writable=True) for n in names)))
    assert found.is_allowed and [(m.source, m.is_writable) for m in found.mounts] == [(f"{folders}/other", writable)]


# -- the file ----------------------------------------------------------------------------------------


def test_file_is_read(load):
    found = load('mode = "permissive"\n[tools]\nallow = ["read_*"]\ndeny = ["read_secret"]')
    assert found == Policy("permissive", ("read_*",), ("read_secret",))


def test_every_key_is_read(load):
    text = """
        mode = "strict"
        [roles.chat]
        deny = ["exec"]
        [quotas]
        min_cpus = 0.1
        max_cpus = 2
        min_memory = "1m"
        max_memory = "2g"
        max_swap = "unlimited"
        max_pids = 10
        max_tmpfs = 100
        max_disk = "1g"
        [mounts]
        binds = true
        volumes = false
        tmpfs = false
        allow = ["/srv/*"]
        deny = ["*x"]
        [[mounts.rules]]
        path = "/srv//lib/"
        [network]
        proxy = false
        host = true
        [ipc]
        allow = ["a"]
        deny = ["b"]
        [commands]
        blocked = ["git push"]
        [security]
        root = true
        privileged = true
        [runtime]
        pinned = false
        latest = true
        pins = {python = "%s"}
    """
    assert load(text % ("a" * 64)) == Policy(
        roles={"chat": Lists(deny=("exec",))},
        quotas=Quotas(0.1, 2, MB, 2 * GB, None, 10, 100, GB),
        mounts=Mounts(True, False, False, ("/srv/*",), ("*x",), (MountRule("/srv/lib"),)),
        network=Networks(False, True),
        ipc=Lists(("a",), ("b",)),
        commands=("git push",),
        security=Security(True, True),
        runtime=Runtimes(False, True, {"python": "a" * 64}),
    )
    assert load('preset = "permissive"') == PERMISSIVE
    assert load('preset = "permissive"\nmode = "strict"') == replace(PERMISSIVE, mode="strict")


@pytest.mark.covers("A-033")
def test_mode_of_the_file_wins_over_the_given_one(load):
    assert load('mode = "strict"', mode="disabled").mode == "strict"
    assert load("[tools]", mode="disabled").mode == "disabled"
    assert load("[tools]").mode == "strict"


MOUNT = '[[mounts.rules]]\npath = "/fine"\n[[mounts.rules]]\n'


@pytest.mark.covers("A-033", "A-040", "A-041", "A-043", "A-051", "A-277", "E-299", "E-304")
@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ('mode = "lax"', "mode", "strict, permissive, disabled"),
        ("mode = []", "mode", "strict, permissive, disabled"),
        ("mood = 1", "mood", "unknown key mood"),
        ("[tools]\ndney = []", "tools.dney", "unknown key tools.dney"),
        ("tools = 1", "tools", "must be a table"),
        ('[tools]\nallow = "shell"', "tools.allow", "a list"),
        ("[tools]\ndeny = [1]", "tools.deny", "a list"),
        ("[roles.chat]\nmay = []", "roles.chat.may", "unknown key"),
        ("[tools", "policy.path", "not TOML"),
        ("", "policy.path", "is empty"),
        (" \n\t", "policy.path", "only white space"),
        ("[quotas]\nmin_cpus = 5", "quotas.min_cpus", "at most max_cpus (4)"),
        ('[quotas]\nmin_memory = "9g"', "quotas.min_memory", "at most max_memory"),
        ("[quotas]\nmax_cpus = -1", "quotas.max_cpus", "0 or more"),
        ("[quotas]\nmax_cpus = nan", "quotas.max_cpus", "a number"),
        ('[quotas]\nmax_cpus = "2"', "quotas.max_cpus", "a number"),
        ("[quotas]\nmax_pids = 0", "quotas.max_pids", "at least 1"),
        ("[quotas]\nmax_pids = 1.5", "quotas.max_pids", "a whole number"),
        ("[quotas]\nmax_tmpfs = -1", "quotas.max_tmpfs", "a size"),
        ('[quotas]\nmax_tmpfs = "abc"', "quotas.max_tmpfs", "a size"),
        ('[quotas]\nmax_memory = "unlimited"', "quotas.max_memory", "a size"),
        ("[mounts]\nbinds = 1", "mounts.binds", "true or false"),
        ('[mounts]\ndeny = ["srv"]', "mounts.deny", "absolute paths"),
        ('[mounts]\nrules = "x"', "mounts.rules", "tables"),
        (MOUNT + 'path = "srv"', "mounts.rules[1].path", "an absolute path"),
        (MOUNT + "", "mounts.rules[1].path", "an absolute path"),
        (MOUNT + 'path = "/s"\nmode = "rw"', "mounts.rules[1].mode", "readonly, readwrite, denied"),
        (MOUNT + 'path = "/s"\nuser = "a"\ngroup = "b"', "mounts.rules[1]", "a user and a group"),
        (MOUNT + 'path = "/s"\nwho = "a"', "mounts.rules[1].who", "unknown key"),
        ("[runtime.pins]\npython = 'x'", "runtime.pins.python", "a SHA-256"),
    ],
)
def test_invalid_file_names_itself_and_the_key(load, tmp_path, text, key, words):
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert caught.value.key == key
    assert str(tmp_path / "policy.toml") in str(caught.value) and words in str(caught.value)


@pytest.mark.covers("A-040")
def test_limits_made_in_code_are_checked_too():
    for quotas in (Quotas(min_cpus=5), Quotas(min_memory=9 * GB), Quotas(max_pids=0), Quotas(max_tmpfs=-1), Quotas(max_swap=-1)):
        with pytest.raises(ConfigError, match=r"^quotas\."):
            check_sane(Policy(quotas=quotas))


@pytest.mark.covers("A-041", "E-304")
@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("100", 100),
        ("1k", 1024),
        ("512m", 536_870_912),
        ("1g", 1_073_741_824),
        ("1G", 1_073_741_824),
        (7, 7),
        (0, 0),
        ("unlimited", None),
    ],
)
def test_size_is_read(text, size):
    assert size_bytes(text) == size


@pytest.mark.covers("A-041", "E-304")
@pytest.mark.parametrize("text", ["abc", "", "-1", "1.5g", "1t", "1 gb", -1, True, 1.5, None, "k"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ConfigError, match="a size"):
        size_bytes(text)


@pytest.mark.covers("A-043", "A-277")
def test_missing_file_is_made_from_the_default_policy(tmp_path):
    path = tmp_path / "policy.toml"
    assert policy_file.load(path) == Policy()
    assert path.read_text() == policy_file.FIRST and path.stat().st_mode & 0o777 == 0o600
    path.write_text('mode = "permissive"')
    assert policy_file.load(path).mode == "permissive"


@pytest.mark.covers("A-043", "A-277")
@pytest.mark.parametrize(
    ("name", "words"), [("policy.yaml", "must end in .toml"), ("none/policy.toml", "No such file"), ("folder.toml", "directory")]
)
def test_file_that_cannot_be_is_refused(tmp_path, name, words):
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ConfigError, match=words):
        policy_file.load(tmp_path / name)
    assert not (tmp_path / "policy.yaml").exists()


def test_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "p.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        policy_file.load(tmp_path / "p.toml")


@pytest.mark.covers("A-044", "E-306")
@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("${ROOT}/x", "/srv/x"),
        ("${NONE:-/opt}/x", "/opt/x"),
        ("${EMPTY:-/opt}/x", "/opt/x"),
        ("/a${NONE}b", "/ab"),
        ("/$${ROOT}", "/${ROOT}"),
        ("/a$ROOT", "/a$ROOT"),
    ],
)
def test_variables_are_replaced(load, text, path):
    found = load(f'[[mounts.rules]]\npath = "{text}"', environ={"ROOT": "/srv", "EMPTY": ""})
    assert found.mounts.rules == (MountRule(path),)


@pytest.mark.covers("A-044", "E-306")
def test_variable_that_leaves_a_relative_path_is_refused(load):
    with pytest.raises(ConfigError, match=r"mounts\.rules\[0\]\.path = 'x'"):
        load('[[mounts.rules]]\npath = "${NONE}x"', environ={})


# -- one policy over another -------------------------------------------------------------------------


@pytest.mark.covers("A-045", "E-307")
def test_lists_that_hold_something_replace_and_single_values_always_do():
    ground = BuiltinRules((MountRule("/toml"),), ("git push",), ("/home/owl",))
    base = Policy(
        "permissive",
        ("a",),
        ("b",),
        quotas=Quotas(max_cpus=9),
        mounts=Mounts(binds=True, deny=("/x",), rules=(MountRule("/base"),)),
        network=Networks(host=True),
        roles={"chat": Lists(("r",))},
        ground=ground,
    )
    own = Policy(tools_deny=("c",), ipc=Lists(("t",)))
    found = laid_over(base, own)
    assert (found.mode, found.tools_allow, found.tools_deny) == ("strict", ("a",), ("c",))
    assert (found.quotas.max_cpus, found.network.host, found.mounts.binds) == (4, False, None)
    assert (found.mounts.deny, found.mounts.rules, found.roles, found.ipc) == (
        ("/x",),
        (MountRule("/base"),),
        {"chat": Lists(("r",))},
        Lists(("t",)),
    )
    assert found.ground == ground
    listed = laid_over(base, Policy(mounts=Mounts(rules=(MountRule("/own"),))))
    assert [rule.path for rule in listed.allowlist.rules] == ["/own"] and "git push" in listed.forbidden.patterns
    assert listed.ground.closed == ("/home/owl",)


@pytest.mark.covers("A-152")
def test_policy_adds_commands_to_the_built_in_ones():
    rules = Policy(commands=("git push",), ground=BuiltinRules(blocked=("make",)))
    assert [ids(rules.judge(PolicyRequest("t", command=c))) for c in ("git push", "make", "sudo ls", "git pull")] == [
        ["command.blocked"]
    ] * 3 + [[]]


def test_environment_of_this_process_is_used_where_none_is_given(load):
    name = next(name for name, value in os.environ.items() if value.startswith("/") and name.isidentifier() and ".ssh" not in value)
    assert load(f'[[mounts.rules]]\npath = "${{{name}}}"').mounts.rules[0].path
