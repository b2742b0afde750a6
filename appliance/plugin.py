"""What a plugin imports: the one surface of the product that stays stable for code written by its users.

A plugin is a module with a function `register(plugin)`; docs/guides/plugins.md shows a whole one. Everything a plugin needs is
here under one name: marking a tool, declaring a scheme, showing entries, listening to events, changing a record, ending a
loop, refusing a request. Other modules of the package move and change without notice; names here change only with a note
in CHANGELOG.md under "Plugins". Nothing in the package imports this module.
"""

from msgspec.structs import replace

from appliance.agent.plugins import Plugin
from appliance.agent.stop_conditions import Verdict
from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.errors import BadInput, NotFound, OwlError, Refused, Unavailable
from appliance.knowledge.contents import Entry
from appliance.knowledge.entries import Entries
from appliance.knowledge.schemes import Scheme
from appliance.policy.taint import ToolReach as Reach
from appliance.runtime.hook_points import MOMENTS, EntryNews
from appliance.runtime.signatures import Range

__all__ = [
    "MOMENTS",
    "BadInput",
    "Caller",
    "Entries",
    "Entry",
    "EntryNews",
    "Needs",
    "NotFound",
    "OwlError",
    "Plugin",
    "Range",
    "Reach",
    "Refused",
    "Reply",
    "Scheme",
    "Unavailable",
    "Verdict",
    "replace",
    "tool",
]
