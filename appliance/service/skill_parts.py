"""Builds the skills of a home from its configuration, and looks at those outside of its box from time to time."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from appliance.knowledge.entries import Entries
from appliance.runtime import settings
from appliance.runtime.paths import Home
from appliance.runtime.periodic import Rounds
from appliance.runtime.tool_settings import SkillSettings as SkillKeys
from appliance.skills.catalog import SkillCatalog
from appliance.skills.skill_records import SkillRecords
from appliance.store.database import Store

LOG = logging.getLogger(__name__)


def build_skills(home: Home, chosen: SkillKeys, store: Store, entries: Entries, environ: Mapping[str, str]) -> SkillCatalog:
    """The skills as the configuration says where they lie and which are trusted; nothing is read yet."""
    return SkillCatalog(
        home.box,
        entries,
        SkillRecords(store),
        environ,
        extra=[home.root / folder for folder in chosen.folders],
        trusted=chosen.trusted,
        is_enabled=chosen.enabled,
    )


def environments_folder(home: Home) -> Path:
    """Where the packages of skills are installed."""
    return home.root / "skill-envs"


class SkillRescan:
    """Looks at the folders of skills outside of the box every `skills.rescan_s`; without such folders there is no thread."""

    def __init__(self, skills: SkillCatalog, configured: Callable[[], settings.Config]) -> None:
        self._skills = skills
        self._configured = configured
        self._rounds = Rounds("skills", self._look, "skills outside of box/", LOG)

    def start(self) -> None:
        """Look from now on."""
        if self._skills.has_outside:
            self._rounds.start()

    def stop(self) -> None:
        """Begin no other look; never blocks."""
        self._rounds.stop()

    def _look(self) -> float:
        self._skills.rescan()
        return self._configured().skills.rescan_s
