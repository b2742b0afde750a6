"""The allowlist of folders, what is never shown, and paths inside a working folder."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import BadInput, ConfigError, Refused, TooLarge
from appliance.policy.mounts import BLOCKED, Allowlist, MountRule, Who, clean, contains, listed, matches, within

ADA = Who("ada", ("birds",), "coder", is_admin=True)
BOB = Who("bob", (), "coder")


def modes(*rules, **more):
    """Resolve paths by these rules; gives `mode rule`."""
    found = Allowlist.of(rules, **more)

    def ask(path, who=ADA, *, is_writable=True):
        resolved = found.resolve(path, who, is_writable=is_writable)
        return f"{resolved.mode} {resolved.rule}".strip()

    return ask


@pytest.mark.covers("A-061", "E-301")
def test_path_is_evaluated_as_what_it_is_after_cleaning():
    assert clean("/home/alice/../bob/.ssh") == "/home/bob/.ssh"
    assert clean("//a/./b//c/") == "/a/b/c" and clean("/..") == "/"
    assert modes(MountRule("/home/*"))("/home/alice/../bob/.ssh") == "denied mount.bind.blocked"
    assert modes(MountRule("/home/bob"))("/home/alice/../bob") == "readonly"


@pytest.mark.covers("A-059")
@pytest.mark.parametrize(
    ("path", "words"), [("a/b", "not absolute"), ("", "not absolute"), ("/a\0b", "NUL"), ("/" + "a" * 5000, "4096")]
)
def test_path_that_cannot_be_is_refused(path, words):
    with pytest.raises(BadInput, match=words):
        clean(path)


@pytest.mark.covers("A-042", "A-062", "E-301", "E-302")
@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("/data/*/shared", "/data/a/shared", True),
        ("/data/*/shared", "/data/a/b/shared", True),
        ("/data/*/shared", "/data/a/shared/sub", False),
        ("/home/*/projects", "/home/alice/projects/sub", False),
        ("/tmp/*", "/tmp/work", True),
        ("/tmp/*", "/tmp/work/deep", True),
        ("/tmp/*", "/tmp", False),
        ("/home/*/.ssh", "/home/.ssh", False),
        ("/home/*/.ssh", "/home/bob/.ssh", True),
        ("/srv", "/srv", True),
        ("/srv", "/srv/sub", False),
        ("/srv", "/SRV", False),
        ("/a[b]", "/ab", False),
        ("/a[b]", "/a[b]", True),
        ("/a[b]*", "/abc", False),
        ("/a?/*", "/ab/c", False),
    ],
)
def test_pattern_fits_one_cleaned_path(pattern, path, is_match):
    assert matches(pattern, path) is is_match


@pytest.mark.covers("A-042", "E-303")
@pytest.mark.parametrize(
    ("allow", "deny", "is_listed"),
    [
        ([], [], True),
        ([], ["/srv/x"], False),
        (["/srv/*"], [], True),
        (["/srv"], [], False),
        (["/srv/*"], ["*x"], False),
        (["/opt/*"], [], False),
    ],
)
def test_deny_wins_and_an_empty_allow_list_allows_all(allow, deny, is_listed):
    assert listed("/srv/./y/../x", allow, deny) is is_listed


@pytest.mark.covers("A-060")
@pytest.mark.parametrize(
    ("root", "path", "is_inside"),
    [
        ("/ws", "/ws", True),
        ("/ws", "/ws/x", True),
        ("/ws", "/ws-evil/x", False),
        ("/ws/", "/ws/x", True),
        ("/", "/x", True),
        ("/ws/a", "/ws", False),
    ],
)
def test_containment_goes_by_whole_names(root, path, is_inside):
    assert contains(root, path) is is_inside


@pytest.mark.covers("A-050")
def test_what_is_not_listed_is_denied():
    assert modes(MountRule("/opt/owl"))("/opt/other") == "denied mount.bind.source_not_allowed"
    assert modes(MountRule("/opt/owl"))("/opt/owl/sub") == "denied mount.bind.source_not_allowed"
    assert modes()("/opt/owl") == "denied mount.bind.source_not_allowed"


@pytest.mark.covers("A-051", "E-299")
@pytest.mark.parametrize(
    ("rule", "key", "words"),
    [
        (MountRule("srv"), "mounts[1].path", "an absolute path"),
        (MountRule(""), "mounts[1].path", "an absolute path"),
        (MountRule("/a\0"), "mounts[1].path", "an absolute path"),
        (MountRule("/srv", "write"), "mounts[1].mode", "readonly, readwrite, denied"),
        (MountRule("/srv", kind="toy"), "mounts[1].kind", "project, reference"),
        (MountRule("/srv", user="ada", group="birds"), "mounts[1]", "a user and a group"),
    ],
)
def test_bad_entry_is_named_by_its_number(rule, key, words):
    with pytest.raises(ConfigError) as caught:
        Allowlist.of([MountRule("/fine"), rule])
    assert caught.value.key == key and words in str(caught.value) and "mounts[1]" in str(caught.value)


USERS = (MountRule("/d", "denied"), MountRule("/d", "readonly", user="ada"), MountRule("/d", "readwrite", "project", group="birds"))


@pytest.mark.covers("A-052", "E-300")
@pytest.mark.parametrize(
    ("rules", "who", "mode"),
    [
        (USERS, ADA, "readonly"),  # the person's own comes first, wherever it stands
        (USERS, Who("eve", ("birds",), "coder", is_admin=True), "readwrite"),  # then the group's
        (USERS, Who("eve"), "denied mount.bind.denied"),  # then everybody's
        (USERS, Who(), "denied mount.bind.denied"),  # also when nobody knows who it is
        ((MountRule("/d"), MountRule("/d", "denied")), ADA, "readonly"),  # the first of equals
        ((MountRule("/d", "denied"), MountRule("/d")), ADA, "denied mount.bind.denied"),
        ((MountRule("/d", "denied", user="ada"), MountRule("/d")), ADA, "denied mount.bind.denied"),
        ((MountRule("/d", group="birds"), MountRule("/*", "denied", user="ada")), ADA, "denied mount.bind.denied"),
        ((MountRule("/d", user="ada"),), BOB, "denied mount.bind.source_not_allowed"),
        ((MountRule("/d", group="birds"),), BOB, "denied mount.bind.source_not_allowed"),
    ],
)
def test_priority_is_user_then_group_then_everybody(rules, who, mode):
    assert modes(*rules)("/d", who) == mode


@pytest.mark.covers("A-053", "A-057")
@pytest.mark.parametrize(
    "name",
    [*(p.replace("*", "server") for p in BLOCKED), ".env.local", "ID_RSA", ".SSH", "id_ed25519", "secrets.kdbx", ".netrc", "a.PEM"],
)
@pytest.mark.parametrize("shape", ["/srv/{}", "/srv/{}/below", "/srv/a/{}"])
def test_built_in_blocked_names_are_never_opened(name, shape):
    path = shape.format(name)
    assert modes(MountRule(path, "readwrite", "project"), MountRule("/srv/*"))(path) == "denied mount.bind.blocked"
    assert modes(is_open=True)(path) == "denied mount.bind.blocked"


@pytest.mark.parametrize("name", ["environment", "keys", "id_rsa.txt", "credentials.py", "ssh", ".env.example", "monkey"])
def test_innocent_names_are_not_blocked(name):
    assert modes(MountRule("/srv/*"))(f"/srv/{name}") == "readonly"


@pytest.mark.covers("A-053", "A-057")
def test_own_folders_are_never_shown(tmp_path):
    home, link = tmp_path / "home", tmp_path / "link"
    home.mkdir()
    link.symlink_to(home)
    ask = modes(MountRule(f"{tmp_path}/*", "readwrite", "project"), MountRule(str(tmp_path)), closed=[link])
    for path in (home, link, home / "owlbox.toml", link / "sessions"):
        assert ask(str(path)) == "denied mount.bind.blocked"
    assert ask(str(tmp_path / "homely")) == "readwrite"
    assert list(Allowlist.of(closed=[home]).narrowed(str(tmp_path), ADA)) == [(home, "hidden")]


@pytest.mark.covers("A-048", "A-054", "A-055", "E-298")
@pytest.mark.parametrize(
    ("rule", "who", "mode"),
    [
        (MountRule("/p", "readwrite", "project"), ADA, "readwrite"),
        (MountRule("/p", "readwrite", "project"), Who("ada", role="chat", is_admin=True), "denied mount.project.role"),
        (MountRule("/p", "readonly", "project"), ADA, "readonly"),
        (MountRule("/p", "readwrite", "reference"), ADA, "readonly"),
        (MountRule("/p", "readwrite", "project"), BOB, "readonly"),  # shared, and no admin
        (MountRule("/p", "readwrite", "project", group="birds"), Who("eve", ("birds",), "coder"), "readonly"),
        (MountRule("/p", "readwrite", "project", user="bob"), BOB, "readwrite"),  # bob's own
    ],
)
def test_write_access_is_narrowed(rule, who, mode):
    assert modes(rule)("/p", who) == mode
    if mode == "readwrite":
        assert modes(rule)("/p", who, is_writable=False) == "readonly"


@pytest.mark.covers("S-080")
def test_without_the_restriction_every_other_path_is_readable():
    ask = modes(MountRule("/srv/shut", "denied"), is_open=True)
    assert (ask("/usr/share"), ask("/srv/shut"), ask("/root/.ssh")) == (
        "readonly",
        "denied mount.bind.denied",
        "denied mount.bind.blocked",
    )


@pytest.mark.covers("A-059")
def test_link_counts_as_what_it_leads_to(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "keys" / ".ssh").mkdir(parents=True)
    for name, target in (("ok", "docs"), ("out", "/etc"), ("bad", "keys/.ssh")):
        (tmp_path / name).symlink_to(target)
    rules = [MountRule(str(tmp_path / name), "readwrite", "project") for name in ("ok", "out", "bad")]
    ask = modes(*rules, MountRule(str(tmp_path / "docs")))
    assert ask(str(tmp_path / "ok")) == "readonly"  # as the folder itself
    assert ask(str(tmp_path / "out")) == "denied mount.bind.source_not_allowed"
    assert ask(str(tmp_path / "bad")) == "denied mount.bind.blocked"
    assert Allowlist.of(rules).resolve(str(tmp_path / "out"), ADA).why.startswith("it leads to /etc")


def test_visible_are_the_entries_that_are_there(tmp_path):
    (tmp_path / "a").mkdir()
    rules = [
        MountRule(f"{tmp_path}/a", "readwrite", "project"),
        MountRule(f"{tmp_path}/gone"),
        MountRule(f"{tmp_path}/*"),
        MountRule(f"{tmp_path}/no", "denied"),
    ]
    found = Allowlist.of(rules)
    assert [(r.path, r.mode) for r in found.visible(ADA)] == [(f"{tmp_path}/a", "readwrite")]
    assert found.visible(Who("ada", role="chat")) == []


@pytest.mark.covers("A-053", "A-057")
def test_masks_hide_what_lies_in_a_shown_folder(tmp_path):
    for name in ("src/deep", "src/.git", ".ssh/x", "shut/x"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("src/deep/server.pem", ".env", "src/main.py", ".env.example"):
        (tmp_path / name).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    found = [path for path, _ in Allowlist.of([MountRule(f"{tmp_path}/shut", "denied")]).narrowed(str(tmp_path), ADA)]
    assert sorted(str(p.relative_to(tmp_path)) for p in found) == [".env", ".ssh", "shut", "src/deep/server.pem"]


@pytest.mark.covers("A-050", "A-052", "A-059")
def test_what_is_denied_under_one_name_is_denied_under_every_other(tmp_path):
    (tmp_path / "disk/library/private").mkdir(parents=True)
    (tmp_path / "srv").symlink_to("disk")
    by_link, by_name = f"{tmp_path}/srv/library", f"{tmp_path}/disk/library"
    rules = [MountRule(by_link), MountRule(by_name), MountRule(f"{by_link}/private", "denied")]
    assert modes(*rules)(f"{by_name}/private") == "denied mount.bind.denied"
    assert list(Allowlist.of(rules).narrowed(by_name, ADA)) == [(Path(by_name, "private"), "hidden")]
    mine = MountRule(f"{by_name}/private", user="ada")  # the person's own entry comes first, whatever the name
    assert modes(*rules, mine)(f"{by_name}/private") == "readonly"


@pytest.mark.covers("A-050", "A-057")
def test_an_entry_below_a_writable_folder_narrows_it(tmp_path):
    for name in ("ws/ro/deep", "ws/no", "ws/plan", "ws/own"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ws/ro/deep/x.lock").touch()
    rules = [
        MountRule(f"{tmp_path}/ws", "readwrite", "project", user="ada"),
        MountRule(f"{tmp_path}/ws/ro", user="ada"),
        MountRule(f"{tmp_path}/ws/no", "denied"),
        MountRule(f"{tmp_path}/ws/own", "readwrite", "project", user="ada"),
        MountRule(f"{tmp_path}/ws/*.lock", user="ada"),
        MountRule(f"{tmp_path}/ws/plan", "readonly", "project", user="ada"),
        MountRule(f"{tmp_path}/*"),  # means the folder as well, which the person's own entry then widens
    ]
    listed, ws = Allowlist.of(rules), f"{tmp_path}/ws"

    def below(who):
        return sorted((str(p.relative_to(ws)), how) for p, how in listed.narrowed(ws, who))

    assert below(Who("ada", role="coder")) == [
        ("no", "hidden"),
        ("plan", "readonly"),
        ("ro", "readonly"),
        ("ro/deep/x.lock", "readonly"),
    ]
    assert ("plan", "hidden") in below(Who("ada", role="chat"))
    writes = [not listed.is_readonly_below(ws, f"{ws}/{name}", ADA) for name in ("own/a", "ro/deep/a", "a.lock", "a", "ro")]
    assert writes == [True, False, False, True, False]


@pytest.mark.covers("A-057", "A-068")
def test_doors_to_programs_outside_are_hidden(tmp_path):
    """A read-only mount does not stop a message to a socket, nor a namespace."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "agent"))
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "sub/deep").mkdir(parents=True)
        (tmp_path / "sub/.env").touch()
        (tmp_path / "link").symlink_to("agent")
        names = [
            sorted(str(p.relative_to(tmp_path)) for p, _ in Allowlist().narrowed(str(tmp_path), ADA, is_deep=d)) for d in (1, 0)
        ]
        assert names == [["agent", "pipe", "sub/.env"], ["agent", "pipe"]]


@pytest.mark.covers("A-057")
def test_processes_of_this_machine_are_never_shown():
    ask = modes(MountRule("/proc/*"), is_open=True)
    assert {ask(path) for path in ("/proc", "/proc/self/environ", f"/proc/{os.getpid()}/maps")} == {"denied mount.bind.blocked"}
    assert ask("/processes") == "readonly"
    assert (Path("/proc"), "hidden") in Allowlist().narrowed("/", ADA, is_deep=False)


def test_too_large_a_folder_is_not_shown(tmp_path):
    for number in range(5):
        (tmp_path / str(number)).touch()
    with pytest.raises(TooLarge, match="more than 4 files"):
        list(Allowlist.of().narrowed(str(tmp_path), ADA, limit=4))


@pytest.fixture
def room(tmp_path):
    """A working folder with a link to the outside, and something beside it."""
    root = tmp_path / "ws"
    (root / "sub").mkdir(parents=True)
    (root / "out").symlink_to(tmp_path)
    (root / "inner").symlink_to("sub")
    (tmp_path / "ws-evil").mkdir()
    return root


@pytest.mark.covers("A-059", "A-060", "S-127")
@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("../x", BadInput, "go up"),
        ("sub/../sub", BadInput, "go up"),
        ("a\0b", BadInput, "NUL"),
        ("", BadInput, "empty"),
        ("/etc/passwd", Refused, "path is outside workspace"),
        ("out/x", Refused, "path is outside workspace"),
        ("out/ws-evil/x", Refused, "path is outside workspace"),
        (".ssh/config", Refused, "never shown"),
        ("sub/server.key", Refused, "never shown"),
    ],
)
def test_argument_outside_the_working_folder_is_refused(room, text, kind, words):
    with pytest.raises(kind, match=words):
        within(room, text)


def test_argument_inside_is_the_file_it_means(room):
    assert within(room, "sub/a.txt") == room / "sub/a.txt" and within(room, ".") == room
    assert within(room, str(room / "x")) == room / "x" and within(room, "inner/x") == room / "sub/x"
    assert within(room, "..a/b..") == room / "..a/b.."


@pytest.mark.covers("S-080")
def test_unrestricted_argument_may_be_anywhere_but_where_secrets_are(room):
    assert within(room, "/etc/hostname", is_restricted=False) == Path(os.path.realpath("/etc/hostname"))
    with pytest.raises(Refused, match=r"\.ssh is never shown"):
        within(room, "/root/.ssh/id", is_restricted=False)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["a", "..", ".", "", "a.b", "\u00e9", "*"]), max_size=8))
def test_cleaned_path_is_absolute_and_stays_so(names):
    found = clean("/" + "/".join(names))
    assert found.startswith("/") and ".." not in found.split("/") and clean(found) == found
