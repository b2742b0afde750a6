"""Loads the plugins that the configuration enables."""

from collections.abc import Mapping
from typing import Any

from appliance.agent.plugins import Plugins, PluginTargets
from appliance.agent.toolbox import Toolbox
from appliance.service.parts.base import BaseParts
from appliance.service.parts.knowledge import KnowledgeParts


def build_plugins(base: BaseParts, knowledge: KnowledgeParts, toolbox: Toolbox, services: Mapping[str, Any]) -> Plugins:
    """They may add hooks, schemes of references and tools."""
    return Plugins(PluginTargets(base.home.box, base.hooks, knowledge.schemes, toolbox, services), base.settings().plugins)
