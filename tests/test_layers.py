"""The architecture, as a test: rooms import only rooms below them, and each outside package has one home."""

import ast
import functools
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Lowest first. A module imports modules of its own room, as long as no circle arises, and of rooms above its own line
# in this list. What lies beside the rooms (errors, records, clock) everybody may import.
ROOMS = """\
text language store runtime secrets policy sandbox providers models knowledge sessions ingest memory
skills prompt agent work http matrix channels web mcp tools upkeep service console reference tui cli
""".split()
BESIDE = ("__init__", "errors", "records", "clock")
# Groups that may import only these, however low the target is.
WALLS = """\
providers: errors records clock text runtime.http_client runtime.host_lookup providers
channels.rpc: errors records clock store runtime policy sessions knowledge ingest agent channels
tui: errors records clock runtime text.invisible text.references tui
language: errors records clock text language
"""
# Who may import an outside package. The standard library is free except where it would be a side door. Records are msgspec
# Structs, which `msgspec.structs` changes and takes apart; its namesakes of dataclasses raise TypeError for them, so each place
# that uses those, for keys of the configuration and what else stayed a dataclass, is named.
HOMES = """\
store.database: apsw sqlite_vec
store.sql_console: apsw
store.connection_settings: apsw
store.integrity: apsw
store.storage_errors: apsw
store.database_copy: apsw
store.salvage: apsw dataclasses.asdict
store.table_check: apsw
knowledge.vss_index: apsw
runtime.http_client: requests urllib3 http.client http.cookiejar
runtime.watched_socket: certifi
runtime.host_lookup: urllib.request
text.urls: idna
web.git_fetch: dulwich
providers: llama_cpp numpy jinja2 importlib
models.encoder_conversion: numpy
models.catalogue: subprocess
providers.template_process: subprocess
tools: importlib
agent.plugins: importlib
channels.connections: importlib dataclasses.fields
channels.mail.servers: smtplib imapclient
text.markdown_html: markdown_it
matrix: vodozemac
http: websockets
channels.connectors.slack: websockets
tui: textual rich markdown_it
clock: time
runtime.config_edit: tomlkit tomli_w
runtime.log: systemd
runtime.sd_notify: systemd
service.broker_process: subprocess
service.web_process: subprocess
upkeep.repair: subprocess
upkeep.checks: subprocess
upkeep.updates: subprocess
upkeep.sealed_backups: subprocess
service.watching: subprocess
text.markdown: yaml
text.patterns: regex
text.jsonpaths: jsonpath regex
text.xpaths: elementpath
text.references: regex
text.edits: regex
text.gitignore: pathspec
text.html_text: trafilatura
language.planning.rewriting: spellchecker
language.times.recurrence: cronsim
work.worker_control: subprocess
secrets.encryption: cryptography
secrets.web_push: cryptography
skills: msgspec
memory: msgspec
memory.memory_record: yaml
skills.editing: yaml
skills.environments: subprocess
ingest.extract: pypdf
ingest.watcher: watchfiles
ingest.extract_process: subprocess
sandbox.runner: subprocess
mcp.bridge: mcp mcp_types
mcp.connection: mcp mcp_types pydantic
mcp.http_transport: mcp httpx2 pydantic
mcp.stdio_transport: mcp mcp_types anyio
mcp.repair: mcp mcp_types anyio pydantic
mcp.bridge_client: subprocess
cli: argparse readline
console: argparse
reference: argparse
cli.main: importlib
reference.docs: importlib
cli.screen: subprocess
console.inputs: subprocess
sandbox: dataclasses.replace dataclasses.asdict
runtime: dataclasses.replace dataclasses.fields
agent.command_runs: dataclasses.replace
language.times.rules: dataclasses.replace
language.times.time_expression: dataclasses.replace
language.times.frequencies: dataclasses.replace
providers.http_provider: dataclasses.replace
models.spending: dataclasses.fields
secrets.plaintext_migration: dataclasses.fields
service.parts.queue: dataclasses.asdict
mcp.server_config: dataclasses.asdict
nobody: sqlite3 dataclasses.astuple
"""
# Parts of those that open no side door: data files of the package, versions of what is installed; records of msgspec.
FREE = ("importlib.resources", "importlib.metadata", "msgspec")
# Modules that hold or reach keys and models: only these may import them (design: trust).
KEEPERS = """\
providers: models.broker models.pool models.remote_models
models.remote_models: models.pool
models.pool: models.broker
secrets.vault: models.broker secrets.vault_methods
"""
# What a model's file and its template say of themselves, and what memory is free, is read by anybody: no adapter, no key.
OPEN = ("providers.gguf", "providers.chat_template", "providers.memory_room")
# The logic of the product, and the adapters it must do without.
CORE = "agent prompt sessions knowledge work policy tools"
ADAPTERS = ("providers", "channels", "http", "matrix", "tui")

Files = dict[str, Path]


@functools.cache
def table(text: str) -> dict[str, list[str]]:
    return {key: value.split() for key, value in (line.split(":") for line in text.splitlines())}


def package(folder: Path) -> Files:
    """Every module of the package in `folder`, by its dotted name below the package."""
    return {".".join(p.relative_to(folder).with_suffix("").parts): p for p in sorted(folder.rglob("*.py"))}


FILES = package(ROOT / "appliance")


def is_in(module: str, place: str) -> bool:
    """Whether a module is `place`, or lies in it."""
    return f"{module}.".startswith(f"{place}.")


def rank(module: str) -> int | None:
    room = module.partition(".")[0]
    if room in BESIDE:
        return -1
    return len(ROOMS) if room in ("__main__", "plugin") else ROOMS.index(room) if room in ROOMS else None


def imports(path: Path) -> tuple[str, ...]:
    """Every imported name in the file: top-level, inside functions and under TYPE_CHECKING alike."""
    return _imports(path.read_text("utf-8"))


@functools.cache
def _imports(text: str) -> tuple[str, ...]:
    return tuple(_names(ast.parse(text)))


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A module of ours, for all tests that look into it."""
    return ast.parse(path.read_text("utf-8"))


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
    for length in range(len(rest), 0, -1):
        found = ".".join(rest[:length])
        if found in files:
            return found
        if f"{found}.__init__" in files and length == len(rest):
            return f"{found}.__init__"
    return ".".join(rest[:2]) if rest and rest[0] in ROOMS else "__init__" if len(rest) < 2 else rest[0]


def faults(module: str, files: Files) -> list[str]:
    """What is wrong with the imports of a module, one line each."""
    if rank(module) is None:
        return [f"{module} is in no room: add it to ROOMS"]
    found = []
    for name in dict.fromkeys(imports(files[module])):
        if name.startswith("."):
            found.append(f"{module} uses the relative import {name}")
            continue
        target = own(name, files)
        if target is not None:
            found += [fault for fault in _inner_faults(module, target) if fault not in found]
            continue
        if name.startswith(FREE):
            continue
        owners = {o for o, names in table(HOMES).items() if any(is_in(name, n) for n in names)}
        if (owners or name.split(".")[0] not in sys.stdlib_module_names) and not any(is_in(module, o) for o in owners):
            found.append(f"{module} may not import {name}")
    return found


def _inner_faults(module: str, target: str) -> Iterator[str]:
    mine, theirs = rank(module), rank(target)
    assert mine is not None
    if theirs is None:
        yield f"{module} imports {target}, which is in no room"
        return
    if theirs > mine:
        yield f"{module} imports {target}, which is not below it"
    for place, allowed in table(WALLS).items():
        if is_in(module, place) and not any(is_in(target, one) for one in (*allowed, "__init__")):
            yield f"{module} reaches over its wall to {target}"
    for place, keepers in table(KEEPERS).items():
        if is_in(target, place) and target not in OPEN and not any(is_in(module, one) for one in (*keepers, place)):
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


def test_no_circle_inside_a_room():
    graph = {
        module: {t for name in imports(path) if (t := own(name, FILES)) in FILES and t != module} for module, path in FILES.items()
    }
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"these import each other: {' -> '.join(error.args[1])}")


@pytest.mark.covers("S-001")
def test_core_logic_imports_no_adapter_even_indirectly():
    reached = {module: reach(module, FILES) for module in FILES if module.split(".")[0] in CORE.split()}
    adapters = {name for name in FILES if name not in OPEN and any(is_in(name, one) for one in ADAPTERS)}
    assert adapters and reached and {module: found & adapters for module, found in reached.items() if found & adapters} == {}


def test_files_are_sized_for_reading():
    long = {m: n for m, p in FILES.items() if (n := len(p.read_text("utf-8").splitlines())) > 600}
    assert not long, f"split these: {long}"
    silent = [m for m, p in FILES.items() if not ast.get_docstring(parsed(p))]
    assert not silent, f"no docstring: {silent}"


def test_rooms_are_sized_for_finding():
    """Whole folders count: what lies deeper is in the room too."""
    sizes = {room: sum(1 for name in FILES if is_in(name, room)) for room in ROOMS}
    crowded = {room: n for room, n in sizes.items() if n > 45}
    assert not crowded, f"more files than a reader takes in at a glance: {crowded}"


def test_what_is_used_of_dataclasses_is_named_where_it_is_imported():
    """`import dataclasses` would hide from HOMES which of its functions a module calls."""
    assert [module for module, path in FILES.items() if "dataclasses" in imports(path)] == []


def test_nothing_beside_the_package_opens_sqlite_its_own_way():
    beside = [p for p in (*ROOT.glob("tests/**/*.py"), *ROOT.glob("image-build/**/*.py")) if "sqlite3" in p.read_text("utf-8")]
    assert [p.name for p in beside if any(is_in(name, "sqlite3") for name in imports(p))] == []


def test_tests_of_texts_start_no_process():
    """`pytest tests/text` answers in seconds: neither its files nor the helpers they import start processes or models."""
    files = {path.stem: path for path in ROOT.glob("tests/**/*.py")}
    waiting, reached = [path.stem for path in ROOT.glob("tests/text/test_*.py")], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [one.split(".")[0] for one in imports(files[name])] if name in files else []
    assert reached & {"subprocess", "multiprocessing", "process", "quick", "model_fixtures"} == set()


def test_every_room_says_what_it_is_for():
    """ARCHITECTURE.md lists the rooms from the top with the line that stands in each room's `__init__`, in 150 lines."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    row = re.compile(r"^\| `(\w+)/` \| (.*?) \| (.*?) \|$", re.MULTILINE)
    rows = {room: (purpose, starts) for room, purpose, starts in row.findall(text)}
    assert list(rows) == ROOMS[::-1]
    for room, (purpose, starts) in rows.items():
        said = ast.get_docstring(ast.parse(FILES[f"{room}.__init__"].read_text("utf-8"))) or ""
        assert said.splitlines()[0] == purpose
        assert [name for name in re.findall(r"`(\w+)`", starts) if f"{room}.{name}" not in FILES] == []
    assert len(text.splitlines()) <= 150


def test_architecture_names_modules_that_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    named = re.findall(r"`([a-z]+(?:/[a-z_]+)+)`", text)
    paths = [ROOT / "appliance" / name for name in named]
    assert [str(path) for path in paths if not path.is_dir() and not path.with_suffix(".py").exists()] == []


# -- the checks themselves --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        (
            "knowledge.entries",
            "from appliance.sessions.runs import Run",
            "knowledge.entries imports sessions.runs, which is not below it",
        ),
        ("agent.agent", "from . import runs", "agent.agent uses the relative import ..runs"),
        ("agent.agent", "def f():\n    import apsw", "agent.agent may not import apsw"),
        ("agent.agent", "from dataclasses import replace", "agent.agent may not import dataclasses.replace"),
        ("store.database", "import sqlite3", "store.database may not import sqlite3"),
        ("cli.main", "import click", "cli.main may not import click"),
        ("agent.agent", "from urllib.request import urlopen", "agent.agent may not import urllib.request.urlopen"),
        ("tui.app", "from appliance.store.database import Store", "tui.app reaches over its wall to store.database"),
        (
            "service.daemon",
            "from appliance.secrets import vault",
            "service.daemon reaches secrets.vault, which is for models.broker secrets.vault_methods",
        ),
        ("gadgets.one", "", "gadgets.one is in no room: add it to ROOMS"),
    ],
)
def test_checks_notice(tmp_path: Path, module: str, line: str, complaint: str):
    names = (
        "__init__",
        "errors",
        "sessions.runs",
        "store.database",
        "secrets.vault",
        "secrets.vault_methods",
        "models.broker",
        module,
    )
    for name in dict.fromkeys(names):
        path = tmp_path / (name.replace(".", "/") + ".py")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(line if name == module else "")
    assert faults(module, package(tmp_path)) == [complaint]


@pytest.mark.parametrize(
    "line", ["from appliance import __version__", "from appliance.errors import OwlError", "import importlib.resources"]
)
def test_checks_let_ordinary_imports_pass(tmp_path: Path, line: str):
    (tmp_path / "agent").mkdir()
    for name, text in {"__init__": "", "errors": "", "agent/agent": line}.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert faults("agent.agent", package(tmp_path)) == []


def test_adapter_is_found_through_others(tmp_path: Path):
    chain = {"agent/agent": "from appliance.prompt import budget", "prompt/budget": "import appliance.models.client"}
    chain |= {"models/client": "import appliance.tui.app", "tui/app": "", "__init__": "", "tui/__init__": ""}
    for name, text in chain.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(text)
    assert "tui.app" in reach("agent.agent", package(tmp_path))


# -- one way to build ------------------------------------------------------------------------------------

SERVICE = sorted((ROOT / "appliance" / "service").rglob("*.py"))


def callables(record: ast.ClassDef, aliases: set[str]) -> list[str]:
    """The fields of a class that hold something to be called."""
    fields = [
        (one.target.id, ast.unparse(one.annotation))
        for one in record.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    ]
    return [name for name, kind in fields if "Callable" in kind or aliases & set(kind.replace("|", " ").split())]


def aliases_of(tree: ast.Module) -> set[str]:
    """The names that a module gives to types of functions."""
    named = [one for one in tree.body if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)]
    return {one.targets[0].id for one in named if ast.unparse(one.value).startswith("Callable[")}  # type: ignore[attr-defined]


# What a command is declared with: how its result is told, how an argument is read. Nothing is wired with it, most hold none.
DECLARATIONS = {"console.verbs": {"Verb"}}


def test_no_record_is_a_bag_of_callables():
    bags = []
    for module, text in ((module, path.read_text("utf-8")) for module, path in FILES.items()):
        if "Callable" not in text:
            continue
        tree = parsed(FILES[module])
        aliases, named = aliases_of(tree), DECLARATIONS.get(module, set())
        classes = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and one.name not in named]
        bags += [f"{module}.{one.name}: {', '.join(found)}" for one in classes if len(found := callables(one, aliases)) > 1]
    assert not bags, f"hand over the objects that do the work: {bags}"


def test_service_builds_in_functions_of_sixty_lines():
    functions = [(path.name, one) for path in SERVICE for one in ast.walk(parsed(path)) if isinstance(one, ast.FunctionDef)]
    long = [
        f"{name}: {one.name}"
        for name, one in functions
        if one.name.startswith(("__init__", "build", "_build")) and (one.end_lineno or 0) - one.lineno >= 60
    ]
    assert not long, f"build it in two steps: {long}"


def test_service_repairs_no_part_after_it_was_built():
    repaired = []
    for path in SERVICE:
        for one in ast.walk(parsed(path)):
            is_outside = isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and ast.unparse(one.value) != "self"
            if is_outside and "compress_type" not in ast.unparse(one):  # of an entry of the standard library's zip files
                repaired.append(f"{path.name}:{one.lineno} {ast.unparse(one)}")  # type: ignore[attr-defined]
    assert not repaired, f"hand it to the constructor, or publish an event: {repaired}"


@functools.cache
def classes_of(path: Path) -> list[ast.ClassDef]:
    """The classes of a module."""
    return [one for one in ast.walk(parsed(path)) if isinstance(one, ast.ClassDef)]


def tied_later(record: ast.ClassDef) -> list[str]:
    """Attributes that begin as None, are set by another method, and are asserted to be there by a third."""
    methods = [one for one in record.body if isinstance(one, ast.FunctionDef)]
    stores: list[tuple[str, str, str]] = []
    for method in methods:
        for node in ast.walk(method):
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                stores.append((method.name, ast.unparse(node.target), ast.unparse(node.value)))
            for whole in node.targets if isinstance(node, ast.Assign) else []:
                parts = whole.elts if isinstance(whole, ast.Tuple) else [whole]
                stores += [(method.name, ast.unparse(one), ast.unparse(node.value)) for one in parts]  # type: ignore[attr-defined]
    empty = {name for method, name, value in stores if method == "__init__" and value == "None"}
    later = {name for method, name, _ in stores if method != "__init__"}
    asserted = {ast.unparse(node.test).split(" is not None")[0] for node in ast.walk(record) if isinstance(node, ast.Assert)}
    return sorted(empty & later & asserted)


def keeps_names(line: ast.stmt, names: set[str]) -> bool:
    """Whether a line does nothing but keep some of these names as attributes of `self`."""
    if not isinstance(line, ast.Assign):
        return False
    targets = [one for whole in line.targets for one in (whole.elts if isinstance(whole, ast.Tuple) else [whole])]
    values = line.value.elts if isinstance(line.targets[0], ast.Tuple) and isinstance(line.value, ast.Tuple) else [line.value]
    is_own = all(isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self" for one in targets)
    return is_own and any(isinstance(one, ast.Name) and one.id in names for one in values)


def setters(record: ast.ClassDef) -> list[str]:
    """Public methods that do nothing but keep what they are given."""
    found = []
    for method in (one for one in record.body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")):
        names = {one.arg for one in (*method.args.args[1:], *method.args.kwonlyargs)}
        body = method.body[1:] if ast.get_docstring(method) else method.body
        if body and all(keeps_names(line, names) for line in body) and not method.decorator_list:
            found.append(method.name)
    return found


def test_no_part_is_tied_to_another_later():
    tied = [
        f"{module}.{record.name}: {name}"
        for module, path in FILES.items()
        if not module.startswith("tui.")  # a screen has its widgets once it is mounted
        if "assert " in path.read_text("utf-8")
        for record in classes_of(path)
        for name in tied_later(record)
    ]
    assert not tied, f"hand it to the constructor, or to the method that needs it: {tied}"


def test_no_part_is_given_another_by_a_setter_that_only_service_calls():
    texts = {module: path.read_text("utf-8") for module, path in FILES.items()}
    found = []
    for module, path in FILES.items():
        for record in [] if module.startswith("service.") else classes_of(path):
            for name in setters(record):
                call = re.compile(rf"\.{name}\b")
                callers = [other for other, text in texts.items() if other != module and f".{name}" in text and call.search(text)]
                # What a reloaded configuration changes is set again: such a method is called `configure`.
                if name != "configure" and callers and all(one.startswith("service.") for one in callers):
                    found.append(f"{module}.{record.name}.{name}")
    assert not found, f"hand it to the constructor, or publish an event: {found}"


def test_no_part_hangs_a_function_of_its_own_on_another():
    """`outbox.bell = self.wake` is an event that nobody declared."""
    hung = []
    for module, path in FILES.items():
        for record in classes_of(path):
            methods = [one for one in record.body if isinstance(one, ast.FunctionDef)]
            own = {f"self.{one.name}" for one in methods}
            for method in methods:
                lines = [one for one in ast.walk(method) if isinstance(one, ast.Assign)]
                for line in lines:
                    outside = [one for one in line.targets if isinstance(one, ast.Attribute) and ast.unparse(one.value) != "self"]
                    if not outside or not (isinstance(line.value, ast.Lambda) or ast.unparse(line.value) in own):
                        continue
                    built = {ast.unparse(target) for one in lines for target in one.targets}  # by this method itself
                    if any(ast.unparse(one.value) not in built for one in outside):
                        hung.append(f"{module}:{line.lineno} {ast.unparse(outside[0])}")
    assert not hung, f"publish an event: {hung}"


@pytest.mark.parametrize(
    ("methods", "tied", "kept"),
    [
        (
            "def __init__(self): self._b = None\n def tie(self, b): self._b = b\n def f(self): assert self._b is not None",
            ["self._b"],
            ["tie"],
        ),
        ("def __init__(self, b): self._b = b\n def f(self): assert self._b is not None", [], []),
        ("def keep(self, b): self._b, self._c = b, 1\n def g(self, b): self._b = self.f(b)", [], ["keep"]),
        ("def look(self, b):\n  found = b\n  return found", [], []),
    ],
)
def test_late_ties_are_noticed(methods: str, tied: list[str], kept: list[str]):
    (record,) = [one for one in ast.parse(f"class A:\n {methods}").body if isinstance(one, ast.ClassDef)]
    assert tied_later(record) == tied and setters(record) == kept


def test_a_class_name_is_used_once():
    found: dict[str, list[str]] = {}
    for module, path in FILES.items():
        for node in classes_of(path):
            found.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}
