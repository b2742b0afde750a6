"""Builds the skills of a home from its configuration."""

from collections.abc import Mapping
from pathlib import Path

from appliance.knowledge.entries import Entries
from appliance.runtime import settings
from appliance.runtime.paths import Home
from appliance.skills.catalog import Skills
from appliance.skills.skill_records import SkillRecords
from appliance.store.database import Store


def build_skills(home: Home, chosen: settings.Skills, store: Store, entries: Entries, environ: Mapping[str, str]) -> Skills:
    """The skills as the configuration says where they lie and which are trusted; nothing is read yet."""
    return Skills(
        home.box,
        entries,
        SkillRecords(store),
        environ,
        extra=[home.root / folder for folder in chosen.folders],
        trusted=chosen.trusted,
        is_enabled=chosen.enabled,
        most=chosen.max_per_owner,
    )


def environments_folder(home: Home) -> Path:
    """Where the packages of skills are installed."""
    return home.root / "skill-envs"
