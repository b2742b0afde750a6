"""Plugins: Python of the house's own, loaded by name into the core, that adds tools, schemes, views and listeners.

One is a file `box/plugins/NAME.py`, a folder `box/plugins/NAME/` with `__init__.py`, or an entry point `owlbox.plugins`
of an installed package. None is loaded that `[plugins] enabled` does not name. A plugin is a module with a function
`register(plugin)`; what that asks for holds all together or not at all. It works with the rights of the core: it is
not held by any sandbox or policy. One that fails, or takes too long to load, is told of in `problems` and stops nothing.
Not promised: that the thread of one that took too long ever ends; what it asks for then is not heard any more.
"""

import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict as struct_asdict

from appliance.agent import tool_manuals
from appliance.agent.plugin_files import describe_error, find_installed, source
from appliance.agent.toolbox import Toolbox, read_tool
from appliance.errors import BadInput
from appliance.knowledge.contents import Entry
from appliance.knowledge.schemes import Scheme, Schemes
from appliance.policy.taint import ToolReach
from appliance.runtime import hook_points
from appliance.runtime.hook_points import EntryNews
from appliance.runtime.hooks import PRIORITY, Handler, HandlerFailed, Hooks
from appliance.runtime.settings import PluginSettings as Keys
from appliance.sessions.runs import RunCreated
from appliance.sessions.turns import RunStateChanged

LOG = logging.getLogger(__name__)
PREFIX = "owlbox_plugin_"
MAX_PROBLEMS = 20  # that are remembered
Show = Callable[[str, Entry], str]


class PluginTargets(Struct, frozen=True):
    """The registries that plugins may add to; tools request `services` by name."""

    box: Path
    hooks: Hooks
    schemes: Schemes
    toolbox: Toolbox
    services: Mapping[str, Any] = {}


class LoadedPlugin(Struct, frozen=True):
    """One enabled plugin, loaded or failed; `mcp_offers` are its tools, schemes and moments."""

    name: str
    where: str
    state: Literal["loaded", "failed"]
    offers: tuple[str, ...] = ()
    problem: str = ""


class Plugin:
    """What `register` is given: it notes what a plugin wants, which is done when the plugin has said everything."""

    def __init__(self, name: str, services: Mapping[str, Any]) -> None:
        self.name = name
        self.services = MappingProxyType(dict(services))
        self.schemes: list[Scheme] = []
        self.tools: list[tuple[Callable[..., Any], tool_manuals.Manual | None]] = []
        self.handlers: list[tuple[str, Handler, int]] = []

    def tool(self, function: Callable[..., Any], manual: Mapping[str, Any] | None = None) -> None:
        """Offer a function that is marked with `@tool`; `manual` is a table as in tools/manuals."""
        name = read_tool(function).mark.name
        made = None if manual is None else tool_manuals.parse(name, dict(manual))
        if made is not None and (problems := made.problems()):
            raise BadInput(f"the manual of {name}: {problems[0]}", hint="see docs/guides/plugins.md")
        self.tools.append((function, made))

    def scheme(self, scheme: Scheme) -> None:
        self.schemes.append(scheme)

    def on(self, name: str, handler: Handler, priority: int = PRIORITY) -> None:
        """Subscribe to an event."""
        self._add_handler("event", name, handler, priority)

    def filter(self, name: str, handler: Handler, priority: int = PRIORITY) -> None:
        """Change a value: the handler gets it first, then what belongs to it, and returns what it shall be."""
        self._add_handler("filter", name, handler, priority)

    def handler(self, name: str, handler: Handler, priority: int = PRIORITY) -> None:
        """Be one of a chain, the lowest priority first; one that returns False ends it."""
        self._add_handler("chain", name, handler, priority)

    def visible(self, scheme: str, show: Show, priority: int = PRIORITY) -> None:
        """Say how entries of a scheme read where they are shown whole."""
        self._add_handler("filter", f"{hook_points.VISIBLE}{scheme}", show, priority)

    def summarized(self, scheme: str, show: Show, priority: int = PRIORITY) -> None:
        """Say how entries of a scheme read in one line."""
        self._add_handler("filter", f"{hook_points.SUMMARIZED}{scheme}", show, priority)

    @property
    def offers(self) -> tuple[str, ...]:
        """The plugin's contributions, as text."""
        tools = (f"tool {read_tool(function).mark.name}" for function, _ in self.tools)
        return (*tools, *(f"scheme {one.name}" for one in self.schemes), *dict.fromkeys(name for name, *_ in self.handlers))

    def _add_handler(self, kind: hook_points.Kind, name: str, handler: Handler, priority: int) -> None:
        if not hook_points.is_known(name):
            near = get_close_matches(name, [one.name for one in hook_points.MOMENTS], 1)
            raise BadInput(f"nothing happens under {name!r}", hint=f"{near[0]}?" if near else "docs/guides/plugins.md lists them")
        is_other = any(one.name == name and one.kind != kind for one in hook_points.MOMENTS)
        if is_other:
            actual = next(one.kind for one in hook_points.MOMENTS if one.name == name)
            raise BadInput(f"{name} is {'an' if actual == 'event' else 'a'} {actual}, no {kind}", hint="use on, filter or handler")
        self.handlers.append((name, handler, priority))


LOAD_S = 10.0  # longest time that one may take to load


class Plugins:
    """The plugins of one core."""

    def __init__(self, targets: PluginTargets, keys: Keys, *, load_s: float = LOAD_S) -> None:
        self._targets = targets
        self._load_s = load_s
        self.loaded: list[LoadedPlugin] = []
        self.failures: list[str] = []  # of handlers, the newest last
        self._owners: dict[int, str] = {}  # of handlers by their identity: they live as long as we do
        if keys.enabled:
            targets.hooks.events.subscribe(HandlerFailed, self._record_failure)
        for name in dict.fromkeys(keys.enabled):
            self.loaded.append(self._load_plugin(name))
        self._subscribe(targets.hooks)

    @property
    def problems(self) -> list[str]:
        """Plugins that failed to load and handlers that failed since."""
        return [f"plugin {one.name}: {one.problem}" for one in self.loaded if one.problem] + self.failures

    def plain(self) -> list[dict[str, Any]]:
        """Every plugin that is enabled, for `owlbox status`."""
        return [struct_asdict(one) for one in self.loaded]

    def _subscribe(self, hooks: Hooks) -> None:
        """Tell handlers what changes, as far as there are any: nobody pays for what nobody hears."""
        if hooks.has(hook_points.ENTRY_CREATED) or hooks.has(hook_points.ENTRY_CHANGED):
            hooks.events.subscribe(EntryNews, self._tell_news)
        if hooks.has(hook_points.RUN_CREATED):
            hooks.events.subscribe(RunCreated, lambda created: hooks.tell(hook_points.RUN_CREATED, created.run))
        if hooks.has(hook_points.RUN_STATE):
            moment = hook_points.RUN_STATE
            hooks.events.subscribe(RunStateChanged, lambda now: hooks.tell(moment, now.run, now.status, now.outcome))

    def _tell_news(self, news: EntryNews) -> None:
        self._targets.hooks.tell(hook_points.ENTRY_CREATED if news.kind == "created" else hook_points.ENTRY_CHANGED, news)

    # -- loading ------------------------------------------------------------------------------------

    def _load_plugin(self, name: str) -> LoadedPlugin:
        """One plugin; whatever it raises is contained by a hook of its own, and a thread of its own waits for what hangs."""
        where, problem, plugin = [""], ["it did not end"], Plugin(name, self._targets.services)
        trial = Hooks()
        trial.events.subscribe(HandlerFailed, lambda failed: problem.__setitem__(0, describe_error(failed.error)))

        def ask() -> None:
            register, where[0] = find(self._targets.box, name)
            register(plugin)
            problem[0] = ""

        trial.add("ask", ask)
        trial.add("take", lambda: self._register_parts(plugin))
        asking = threading.Thread(target=trial.tell, args=("ask",), name=f"plugin-{name}", daemon=True)
        with redirect_stdout(sys.stderr):  # standard output is the command's own, maybe JSON
            asking.start()
            asking.join(self._load_s)
        if asking.is_alive():
            problem[0] = f"it took longer than {self._load_s:g} s to load"
        elif not problem[0]:
            trial.tell("take")
        if problem[0]:
            LOG.error("plugin %s is not loaded: %s", name, problem[0])
            return LoadedPlugin(name, where[0], "failed", problem=problem[0])
        LOG.info("plugin %s is loaded from %s", name, where[0])
        return LoadedPlugin(name, where[0], "loaded", plugin.offers)

    def _register_parts(self, plugin: Plugin) -> None:
        """Everything that a plugin wants, or nothing: schemes first, which cannot be taken back but harm nobody."""
        for scheme in plugin.schemes:
            self._targets.schemes.register(scheme)
        added: list[str] = []
        try:
            for function, manual in plugin.tools:
                name = read_tool(function).mark.name
                self._targets.toolbox.add(function, ToolReach("plugin", named=name))
                added.append(name)
                if manual is not None:
                    self._targets.toolbox.manuals.add(name, manual)
        except BaseException:
            for name in added:
                self._targets.toolbox.remove(name)
            raise
        for name, handler, priority in plugin.handlers:
            self._owners[id(handler)] = plugin.name
            self._targets.hooks.add(name, handler, priority)

    def _record_failure(self, failed: HandlerFailed) -> None:
        """Add a failed handler to `failures` for the status; the exception is logged already."""
        if owner := self._owners.get(id(failed.handler), ""):
            told = f"plugin {owner}: {failed.name}: {describe_error(failed.error)}"
            if told not in self.failures:
                self.failures = [*self.failures, told][-MAX_PROBLEMS:]


def find(box: Path, name: str) -> tuple[Callable[[Plugin], object], str]:
    """The `register` of a plugin and where it is from; NotFound for none, BadInput for one that cannot be."""
    path = source(box, name)
    if path is None:
        point = find_installed(box, name)
        return _find_register(point.load(), name), f"package {point.dist.name if point.dist else point.value}"
    return _find_register(_import_module(name, path), name), str(path.relative_to(box))


def _import_module(name: str, path: Path) -> ModuleType:
    """A plugin's module, read anew; its own modules are found beside it, and nothing is written there."""
    full = f"{PREFIX}{name}"
    for known in [one for one in sys.modules if one == full or one.startswith(f"{full}.")]:
        del sys.modules[known]
    folder = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(full, path, submodule_search_locations=folder)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} cannot be read as Python")
    module, before = importlib.util.module_from_spec(spec), sys.dont_write_bytecode
    sys.modules[full], sys.dont_write_bytecode = module, True  # box/ is watched
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def _find_register(found: Any, name: str) -> Callable[[Plugin], object]:
    """The function that a plugin begins with: what an entry point names, or `register` of its module."""
    register = getattr(found, "register", None) if isinstance(found, ModuleType) else found
    if not callable(register):
        raise BadInput(f"{name} has no function register(plugin)", hint="docs/guides/plugins.md has an example")
    made: Callable[[Plugin], object] = register
    return made
