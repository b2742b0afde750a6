"""The architecture, as a test: modules import downward only, and each outside package has one home."""

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Lowest first. A module may import any line above its own, never its own line. ARCHITECTURE.md tells
# what each does. These came to the plan while the foundation was laid:
#   places      where home, runtime folder and sockets are: config and log both need it, and so does a
#               command that must find a running core without reading any configuration;
#   signatures  arguments and schema of a typed function, one reading for tools and for RPC methods
#               (jsonrpc stays free of it, so that a client starts quickly);
#   settings    the shape of owlbox.toml, apart from config, which reads it: one file would pass 600 lines;
#   reference   that shape printed as documentation and as the first owlbox.toml;
#   gguf        what a model file says of itself, read before llama.cpp sees it (it aborts on damage);
#   providers   llama is one plug in several files: its parts lie below it, and no plug imports another;
#   listener    the server's side of the socket, as client is the caller's; core and broker share it;
#   shutdown    the orderly end of a process, for core and broker alike;
#   core        builds every part, apart from daemon, which serves it: one file would pass 600 lines;
#   cycles      and verdicts, modes: what ends a loop and what it may do, pure, apart from agent, which thinks;
#   dispatching every command of an answer recorded, then run, apart from agent;
#   loops       one loop of a run driven to its end, for inbox and workers alike;
#   events      and sessions, turns: the tables below runs, which alone would pass 600 lines;
#   branches    the tree of events: forks and jumps; transcripts: sessions as JSON lines; titles: a chat's name;
#   history     what was asked and answered, over all runs;
#   control     what people do with sessions and runs, for every door;
#   annals      the commands about sessions and runs;
#   relay       a loop as it happens, for every door;
#   notices     what connected clients are told unasked, a hub below the doors that fill and serve it;
#   courier     sends letters, apart from outbox, which keeps them;
#   drops       requests that came as files;
#   steps       the moments of a message's and a task's life at which a process may be killed;
#   supervisor  keeps the broker child running, so that core only wires;
#   reach       how a command gets to the core, by socket or in its own process;
#   launch      a core as a child of the screen, apart from supervisor, which would double the screen's imports;
#   terminal    plain text on a terminal, as tui is the full screen;
#   handbook    the reference documents, written from the code;
#   notify      what systemd and a service say to each other, for core and broker alike;
#   doorman     which commands come in over ssh;
#   upkeep      one round of maintenance, which a timer runs;
#   addresses   what a reference means, needed below the store as an SQL function;
#   globs       and bounds, jsonpaths, xpaths: parts of patterns, which alone would pass 600 lines;
#   cues        what a prompt asks for in so many words, for models too small to see it;
#   fences      texts of others inside of ours, for blocks and chronicle alike;
#   healing     and spans, loose, tags: parts of answers, which alone would pass 1000 lines;
#   schemes     who may write which scheme: a declaration, apart from entries, which obeys it;
#   contents    what an entry may hold, apart from entries, which keeps it;
#   changes     the history of entries, apart from entries, which it follows;
#   functions   the SQL functions that the store mcp_offers to every query;
#   queries     what a typed query may do, apart from store, which opens the file it reads;
#   past        the commands undo, history and sql, apart from listings;
#   errands     one tool called by a command, for contexts and agenda alike;
#   signals     signals as something to wait for, for core and workers alike;
#   crew        workers as seen from outside: started, stopped, buried; below the tool that starts one;
#   phases      what a worker says while it works, in its log or on a terminal;
#   briefing    what a worker is told about a task before it begins;
#   ticks       one claim and what becomes of it, apart from workers, which keeps the process alive;
#   office      the queue's parts of a core, apart from core: one file would pass 600 lines;
#   lender      the core's broker for a worker, or one of its own;
#   shifts      the commands about workers, apart from listings;
#   agenda      the commands about tasks, apart from listings;
#   views       what a run sees of the entries, a table of its own;
#   blocks      entries as a model reads them; chronicle: what was said and done, as lines of a log;
#   pruning     which messages of a conversation are sent when not all fit: pure, below packet;
#   scenes      what packet, budget and agent hand to each other; sections: the words of an entries packet;
#   copies      what a model was sent and said, kept for people, a table of its own;
#   overflow    results too long for one look, by page;
#   compaction  the older part of a conversation as a summary;
#   sight       what a run's model is and was sent, for people; glimpses: the commands about it;
#   actions     what a run did and what waits for a decision, as log entries;
#   orders      what a verb is asked to do, and what of that cannot be;
#   selecting   which entries a reference or a pattern means to an actor;
#   verbs       the six verbs over entries and views, one meaning for tags, socket, command line and tools;
#   qualify     whether device and model fit together, above packet: it tries the words that packet uses;
#   drives      entries as drives and folders, for the context tools;
#   vss         a second index of vectors in memory, from an extra: it opens no file of ours;
#   familiar    the names of people, for search, which knows nothing of sessions;
#   grep        texts searched letter by letter, apart from search, which has an index;
#   passages    the index of entries, which two above it read: search and the indexer, which asks models;
#   indexer     vectors in the background, apart from search, which a prompt must not wait for;
#   seccomp     and landlock, usage, slots, jail, cells, porter: parts of the sandbox, which alone would pass 1000 lines;
#   convert     a sentence encoder's weights as GGUF, run as a child so that nobody else pays for numpy;
#   states      prefix states on disk;
#   matching    what a grammar allows next, in pure Python;
#   scheduler   who may use the CPU now, apart from pool, which knows models;
#   amend       one key of owlbox.toml changed in place, apart from config, which reads it;
#   download    one large file by HTTP, apart from catalogue, which knows what it is for;
#   shelf       the commands about models, apart from listings: together they would pass 300 lines;
#   outlines    and pages, ignores, secrecy: what source code defines, what a page says, what git leaves out, what holds keys;
#   readers     what a file says, whatever its form; clerk runs it in children;
#   gather      files of a disk as what an entry could hold, with no database;
#   sources     where entries were read from, apart from entries, which keeps them;
#   intake      what clients have read, at the core's side;
#   project     the files of the workspace as every run sees them;
#   keys        what a configuration key is, apart from settings, which lists them;
#   containment the keys about what holds tools, apart from settings: one file would pass 600 lines;
#   hosts       which places on the net may be reached, pure; resolving, wire, exchange: names, one connection and one
#               request, each in time; all below fetch, which is loaded where nothing is ever fetched;
#   readable    what a fetched page says; websearch: who searches; visits: pages kept to ask about them again;
#   harvest     pages behind search results as entries of a run; web: all of these tied together for core;
#   tables      the migrations of released databases, below schema, which goes on; sizes: what the static prompt takes;
#   acting      a person's verbs on entries, apart from core; running: the commands about services, apart from cli;
#   shellwords  what a shell would run, apart from forbidden, which knows what may not be run;
#   mounts      which folders tools may see; rules: what a policy says to a request, apart from policy, which reads one;
#   warden      what holds tools, built for a core: core alone would pass 600 lines; policing: the commands about it;
#   gate        the policy that holds now, apart from policy: it has a table, and is asked;
#   tallies     how often each tool was called, apart from toolbox;
#   seals       encryption, apart from vault, which keeps files, and for who gives it a value; custody: the vault's methods;
#   strongbox   the core's way to the vault; keeping: the commands about secrets; moving: plain keys into the vault;
#   credentials secrets as variables and files of a tool's process;
#   breaker     and throttle, prices, spend: what bounds remote models, apart from remotes, which asks them, and from pool;
#   failover    which route is asked next: the broker knows one at a time, and each needs a packet of its own;
#   accounts    what every request took, a table of its own; bills: the commands about it;
#   excuses     what a person is told when a model fails;
#   ingests     the commands that read files, apart from contexts, which only asks the core;
#   inside      the program that touches files in the sandbox: its text is sent there, nobody imports it;
#   workbench   where a conversation's tools work, apart from sandbox, which knows neither policy nor sessions;
#   streams     what commands say while they run, as entries; executions: who has to allow them, and what follows;
#   postbox     messages of tools, on their way to the outbox;
#   servers     which servers of tools there are; mcp_sandbox: the sandbox of one that stays; mcp_offers: what they have,
#               tables of its own; mcp_content: what they answer, pure; bridge_client: the core's way to the bridge;
#   hub         all of it for everybody; mcp_stdio, mcp_http, mcp_connections: parts of bridge, which alone would pass 600
#               lines; only they load the protocol's library;
#   mcp_tools   tools of servers as tools of ours; mcp_parts: these parts built for a core; mcp_commands: the commands;
#   rendering   results as models read them, apart from toolbox, which would pass 600 lines;
#   workshop    the parts about files and commands of a core, apart from core: one file would pass 600 lines;
#   handoffs    work that one run hands to another; delegation: who does it; role_parts: these and roles tied together for core;
#   role_commands     the commands about roles and jobs;
#   taint       the rule about texts of strangers, pure; marks: who had a word in what; grants: what passes all the same;
#   origins     how marks get about, apart from marks, which keeps them; checkpoint: what is held at dispatch;
#   clearance   runs what was let pass; taint_parts: these tied together for core; granting: the commands;
#   mcp_server     the protocol that other agents speak with us; guests: what they may call; mcp_serve: the command;
#   zones       names of time zones; daytimes: times of day in English; idioms: the words of English about time;
#   phrases     rules made of them; reminders: what somebody wants to be reminded of, and when; wording: rules in words;
#   lineage     whether a schedule began something; judging: the small model's word on one; firing: what becomes of a due one;
#   effects     what it does then; timetable: what people may do with schedules; timekeeper: the thread that sleeps until the next;
#   rounds      the thread of timekeeper and of courier: looks, sleeps, looks again;
#   hours       these tied together for core, as office is for the queue; schedule_commands: the commands about them;
#   windows     parts of a day; checklist: what HEARTBEAT.md says; quiet: when the owl holds its tongue;
#   unasked     what it does and says unasked, tied together for core; heartbeat_commands: the commands about that;
#   loading     a small agent of its own that fetches a page through MCP servers, apart from web, which asks by HTTP.
LAYERS = """\
__init__ errors records clock steps audience
tables inside globs bounds zones spans fuzzy fences markers cycles modes keys shellwords tallies cues
taint containment forbidden jsonpaths xpaths loose tags diffs excuses breaker throttle failover
verdicts markdown patterns edits healing timing tokens hooks moments jsonrpc notices schema signatures gguf settings addresses hosts
mcp_content rendering windows checklist daytimes
outlines ignores pages manuals secrecy seals credentials idioms wording
phrases
reminders
places signals reference answers schemes contents chunks pruning mounts
readers
config log notify resolving seccomp slots usage rules
landlock wire
jail exchange
cells mcp_sandbox mcp_http
porter servers
rounds vault fetch sandbox watch functions queries convert client listener shutdown doorman amend clerk phases mcp_server
gather readable custody moving mcp_stdio bridge_client
websearch strongbox mcp_connections
store
providers.library providers.repeats providers.room providers.template providers.streaming providers.states providers.matching
providers.grammar providers.sequences providers.remote providers.shapes providers.conversation
providers.writing providers.sse providers.faults
providers.lines providers.draft
providers.hosted
providers.*
marks grants
changes events sessions
turns
accounts entries runs people outbox ledger leases visits mcp_offers
tasks schedules views history handoffs quiet
lineage judging
firing
timetable effects timekeeper
actions selecting orders streams crew briefing branches transcripts titles harvest
scheduler prices
download spend
remotes
models pool catalogue
vss
passages
search policy verbs drives grep blocks chronicle familiar
notes skills indexer sources scenes overflow gate
roles memory documents ingest undo copies sections origins hub
intake project web workbench postbox loading
toolbox
plugins packet mcp_tools
budget qualify approvals dispatching compaction
executions checkpoint
tools.* clearance
agent sight sizes guests
loops
inbox courier drops ticks relay delegation
workers control
heartbeat acting
channels.* backup broker bridge
doctor firstboot metrics onboard upkeep
update
supervisor
lender warden
office workshop role_parts taint_parts mcp_parts
hours
unasked
tui.link tui.commands tui.look tui.owl tui.rows tui.confirm tui.prose tui.bubbles
tui.sender tui.composer tui.follower
tui.waits tui.meter tui.tree
tui.panel
tui.lister
tui.console tui.onlooker
core tui.*
daemon
tui.app
reach handbook
terminal launch
errands
ingests
listings shelf contexts past deciding
agenda schedule_commands shifts annals policing heartbeat_commands keeping bills role_commands granting mcp_commands
glimpses running mcp_serve
cli
__main__
"""
# Groups that may import only these, however low the target is.
WALLS = """\
providers: errors records clock tokens fetch gguf providers
channels: errors records clock jsonrpc signatures config log client runs outbox notices people inbox relay sessions control
tui: errors records clock jsonrpc config client tui
"""
# Who may import an outside package. The standard library is free except where it would be a side door.
HOMES = """\
store: apsw sqlite_vec
queries: apsw
vss: apsw
exchange: http.client
fetch: requests urllib.request http.client
providers: llama_cpp numpy jinja2 requests urllib3 importlib
tools: importlib
plugins: importlib
channels: importlib smtplib imaplib
tui: textual rich markdown_it
config: tomli_w msgspec
records: msgspec
signatures: msgspec
toolbox: msgspec
warden: msgspec
answers: msgspec
markdown: yaml
patterns: regex
jsonpaths: jsonpath regex
xpaths: elementpath
addresses: regex
hosts: idna
wire: certifi
edits: regex
convert: numpy
timing: cronsim
seals: cryptography
update: cryptography subprocess
watch: watchfiles
log: systemd
notify: systemd
supervisor: subprocess
launch: subprocess
crew: subprocess
catalogue: subprocess
clerk: subprocess
ignores: pathspec
pages: trafilatura
readers: pypdf
download: requests
cells: subprocess
bridge: mcp mcp_types
mcp_connections: mcp mcp_types pydantic
mcp_http: mcp httpx2 pydantic
mcp_stdio: mcp mcp_types anyio
bridge_client: subprocess
mcp_commands: argparse
rendering: msgspec
clock: time
cli: argparse readline
listings: argparse
contexts: argparse
errands: argparse
deciding: argparse
agenda: argparse
schedule_commands: argparse
heartbeat_commands: argparse
role_commands: argparse
granting: argparse
shifts: argparse
policing: argparse
keeping: argparse
bills: argparse
glimpses: argparse
mcp_serve: argparse
shelf: argparse
ingests: argparse
past: argparse
annals: argparse
running: argparse
nobody: sqlite3
"""
# Parts of those that open no side door: data files of the package, versions of what is installed.
FREE = ("importlib.resources", "importlib.metadata")
# Modules that hold or reach keys and models: only these may import them (design: trust).
KEEPERS = """\
providers: broker firstboot onboard pool remotes
remotes: pool
pool: broker firstboot onboard
vault: broker firstboot onboard custody
"""
# The logic of the product, and the adapters it must do without.
CORE = """\
agent packet budget entries runs inbox toolbox tools search notes
memory skills roles tasks schedules workers heartbeat policy approvals
"""
ADAPTERS = ("providers", "channels", "tui")

Files = dict[str, Path]


@functools.cache
def table(text: str) -> dict[str, list[str]]:
    return {key: value.split() for key, value in (line.split(":") for line in text.splitlines())}


RANK = {name: i for i, line in enumerate(LAYERS.splitlines()) for name in line.split()}


def package(folder: Path) -> Files:
    """Every module of the package in `folder`, by its dotted name below the package."""
    return {".".join(p.relative_to(folder).with_suffix("").parts): p for p in sorted(folder.rglob("*.py"))}


FILES = package(ROOT / "appliance")


def rank(module: str) -> int | None:
    return RANK.get(module, RANK.get(module.split(".")[0] + ".*"))


def imports(path: Path) -> tuple[str, ...]:
    """Every imported name in the file: top-level, inside functions and under TYPE_CHECKING alike."""
    return _imports(path.read_text("utf-8"))


@functools.cache
def _imports(text: str) -> tuple[str, ...]:
    return tuple(_names(ast.parse(text)))


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ("." * node.level + f"{node.module or ''}.{alias.name}" for alias in node.names)


def own(name: str, files: Files) -> str | None:
    """The module of ours that an imported name means, None for an outside one."""
    top, *rest = name.split(".")
    if top != "appliance":
        return None
    for length in (2, 1):
        if ".".join(rest[:length]) in files:
            return ".".join(rest[:length])
    is_word = len(rest) < 2 and f"{rest[0] if rest else ''}.__init__" not in files and (not rest or rank(rest[0]) is None)
    return "__init__" if is_word else rest[0]  # `from appliance import __version__`


def faults(module: str, files: Files) -> list[str]:
    """What is wrong with the imports of a module, one line each."""
    group, mine, found = module.split(".")[0], rank(module), []
    if mine is None:
        return [f"{module} has no layer: add it to LAYERS"]
    for name in dict.fromkeys(imports(files[module])):
        if name.startswith("."):
            found.append(f"{module} uses the relative import {name}")
            continue
        target = own(name, files)
        if target is not None:
            found += [fault for fault in _inner_faults(module, group, mine, target) if fault not in found]
            continue
        if name.startswith(FREE):
            continue
        owners = {o for o, names in table(HOMES).items() if any(f"{name}.".startswith(f"{n}.") for n in names)}
        if (owners or name.split(".")[0] not in sys.stdlib_module_names) and group not in owners:
            found.append(f"{module} may not import {name}")
    return found


def _inner_faults(module: str, group: str, mine: int, target: str) -> Iterator[str]:
    theirs, top = rank(target), target.split(".")[0]
    if theirs is None:
        yield f"{module} imports {target}, which has no layer"
        return
    if theirs >= mine:
        yield f"{module} imports {target}, which is not below it"
    allowed = table(WALLS).get(group)
    if allowed is not None and top not in (*allowed, "__init__"):
        yield f"{module} reaches over its wall to {target}"
    keepers = table(KEEPERS).get(top)
    if keepers is not None and group not in (*keepers, top):
        yield f"{module} reaches {target}, which is for {' '.join(keepers)}"


def reach(module: str, files: Files) -> set[str]:
    """Every module of ours that importing `module` brings in, itself included."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting += [t for name in imports(files[current]) if (t := own(name, files)) in files] if current in files else []
    return seen


@pytest.mark.parametrize("module", FILES)
def test_imports_point_down(module: str):
    assert faults(module, FILES) == []


@pytest.mark.covers("S-001")
@pytest.mark.parametrize("module", [m for m in FILES if m.split(".")[0] in CORE.split()])
def test_core_logic_imports_no_adapter_even_indirectly(module: str):
    assert sorted(m for m in reach(module, FILES) if m.split(".")[0] in ADAPTERS) == []


def test_files_are_named_and_sized_for_reading():
    plugs = ("tools.", "channels.")  # siblings there may share a name with the module they face
    stems = [m.split(".")[-1] for m in FILES if not m.endswith("__init__") and not m.startswith(plugs)]
    assert len(stems) == len(set(stems)), "two files share a name"
    assert not set(stems) & set(sys.stdlib_module_names), "a file hides a stdlib module"
    long = {m: n for m, p in FILES.items() if (n := len(p.read_text("utf-8").splitlines())) > 600}
    assert not long, f"split these: {long}"
    silent = [m for m, p in FILES.items() if not ast.get_docstring(ast.parse(p.read_text("utf-8")))]
    assert not silent, f"no docstring: {silent}"


def test_nothing_beside_the_package_opens_sqlite_its_own_way():
    beside = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("image-build/**/*.py")]
    assert [p.name for p in beside if any(f"{name}.".startswith("sqlite3.") for name in imports(p))] == []


def test_architecture_text_names_every_module():
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    plugs = ("tools.", "channels.", "providers.", "tui.")
    names = [m for m in FILES if not m.startswith((*plugs, "__"))]
    assert [m for m in names if f"`{m}`" not in text] == []


# -- the checks themselves --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        ("entries", "from appliance.runs import Run", "entries imports runs, which is not below it"),
        ("errors", "from appliance import agent", "errors imports agent, which is not below it"),
        ("agent", "from . import runs", "agent uses the relative import ..runs"),
        ("agent", "def f():\n    import apsw", "agent may not import apsw"),
        ("search", "import apsw", "search may not import apsw"),
        ("store", "import sqlite3", "store may not import sqlite3"),
        ("cli", "import click", "cli may not import click"),
        ("agent", "import subprocess", "agent may not import subprocess"),
        ("agent", "from urllib.request import urlopen", "agent may not import urllib.request.urlopen"),
        ("channels.mail", "from appliance.store import Store", "channels.mail reaches over its wall to store"),
        ("daemon", "from appliance import vault", "daemon reaches vault, which is for broker firstboot onboard custody"),
        ("jsonrpc", "from appliance.signatures import Signature", "jsonrpc imports signatures, which is not below it"),
        ("providers.slow", "import appliance.providers.llama", "providers.slow imports providers.llama, which is not below it"),
        ("gadgets", "", "gadgets has no layer: add it to LAYERS"),
    ],
)
def test_checks_notice(tmp_path: Path, module: str, line: str, complaint: str):
    names = ("__init__", "errors", "runs", "signatures", "store", "vault", "agent", "providers/__init__", "providers/llama", module)
    for name in names:
        path = tmp_path / (name.replace(".", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(line if name == module else "")
    assert faults(module, package(tmp_path)) == [complaint]


@pytest.mark.parametrize(
    "line", ["from appliance import __version__", "from appliance.errors import OwlError", "import importlib.resources"]
)
def test_checks_let_ordinary_imports_pass(tmp_path: Path, line: str):
    for name, text in {"__init__": "", "errors": "", "agent": line}.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert faults("agent", package(tmp_path)) == []


def test_adapter_is_found_through_others(tmp_path: Path):
    chain = {"agent": "from appliance import budget", "budget": "import appliance.models", "models": "import appliance.tui.app"}
    for name, text in (chain | {"__init__": "", "tui/__init__": "", "tui/app": ""}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(text)
    assert "tui.app" in reach("agent", package(tmp_path))
