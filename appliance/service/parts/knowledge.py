"""Builds what the core knows, of people too, and how it is found: entries, index, search, skills, notes, history, memory."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from appliance.agent.result_pages import Overflow
from appliance.channels import session_control
from appliance.errors import OwlError
from appliance.ingest import notes
from appliance.ingest.own_documents import Documents
from appliance.ingest.sources import Sources
from appliance.knowledge import vss_index
from appliance.knowledge.calendar import CalendarAccount, Calendars
from appliance.knowledge.drives import Drives
from appliance.knowledge.entries import Entries
from appliance.knowledge.grep import Texts
from appliance.knowledge.index import Passages
from appliance.knowledge.indexer import BRIEF_S, Indexer, answering, embedding
from appliance.knowledge.known_names import KnownNames
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.search import Search
from appliance.knowledge.views import Views
from appliance.language.times import timezones
from appliance.memory.memories import Memories
from appliance.memory.memory_document import MemoryDocument
from appliance.memory.memory_service import MemoryService
from appliance.memory.session_review import SessionReview
from appliance.service import skill_parts
from appliance.service.parts.base import BaseParts
from appliance.service.parts.models import ModelParts
from appliance.service.parts.policy import PolicyParts
from appliance.sessions.history import History
from appliance.skills.catalog import SkillCatalog
from appliance.skills.skill_service import SkillService
from appliance.work.work_events import OthersWrote


class PassagesChanged(Struct, frozen=True):
    """Entries were written: passages wait for their vectors."""


class KnowledgeParts(Struct, frozen=True):
    """What is known, and the ways to it."""

    passages: Passages
    entries: Entries
    indexer: Indexer
    finder: Search
    views: Views
    schemes: Schemes
    drives: Drives
    texts: Texts
    sources: Sources
    skills: SkillCatalog
    folder: notes.Folder
    history: History
    skill_service: SkillService
    documents: Documents
    overflow: Overflow
    calendars: Calendars

    def services(self) -> dict[str, Any]:
        """What tools may ask for by name."""
        names = ("entries", "finder", "passages", "indexer", "history", "skills", "skill_service", "documents", "overflow")
        return {name: getattr(self, name) for name in (*names, "drives", "texts", "folder", "calendars")}


def build_knowledge(base: BaseParts, policy: PolicyParts, models: ModelParts) -> KnowledgeParts:
    """The index is computed by the models; a write wakes it."""
    store, settings, box = base.store, base.settings(), base.home.box
    passages = Passages(store, partial(base.events.publish, PassagesChanged()))
    entries = Entries(store, passages.index, base.events)
    second = vss_index.Vss(found) if base.is_shared and (found := vss_index.installed()) else None
    indexer = Indexer(
        passages,
        entries,
        embedding(models.models, models.patient, lambda: False),
        answering(models.models, lambda: "small"),
        settings.context,
        second,
        patient_embed=embedding(models.models, models.patient, lambda: True),
    )
    base.events.subscribe(PassagesChanged, lambda changed: indexer.wake())
    base.events.subscribe(OthersWrote, lambda wrote: indexer.wake())
    finder = Search(store, passages, KnownNames(store).names, embed=indexer.brief, beside=second)
    skills = skill_parts.build_skills(base.home, settings.skills, store, entries, base.environ)
    folder, schemes = notes.Folder(box, entries, base.environ, skills.is_skill), Schemes()
    drives = Drives(store, entries, schemes, why_unread=folder.why_unread)
    return KnowledgeParts(
        *(passages, entries, indexer, finder, Views(store, base.events), schemes, drives, Texts(store, schemes)),
        sources=Sources(store, entries, drives),
        skills=skills,
        folder=folder,
        history=History(store, session_control.owners(settings.people)),
        skill_service=SkillService(skills, policy.ledger, base.runs.people.contexts, skill_parts.environments_folder(base.home)),
        documents=Documents(box, base.runs.people.contexts, folder),
        overflow=Overflow(store, entries),
        calendars=Calendars(entries, lambda: timezones.find(base.settings().system.timezone), partial(_account, base)),
    )


def _account(base: BaseParts) -> CalendarAccount | None:
    """The account that added events go to, where one is switched on."""
    table = base.settings().channels.connectors.get("calendar")
    if table is None or not table.enabled or not table.keys.get("url"):
        return None
    person = str(table.keys.get("person") or "")
    return CalendarAccount(str(table.keys.get("calendar") or "calendar"), f"user:{person}" if person else "")


class MemoryParts(Struct, frozen=True):
    """Records of memory, their methods, and the look through a session before it is archived."""

    memories: Memories
    service: MemoryService
    review: SessionReview
    document: MemoryDocument


def build_memory(base: BaseParts, models: ModelParts, knowledge: KnowledgeParts, people: Callable[[], int]) -> MemoryParts:
    """`people` says how many people and groups talk here."""
    embed = embedding(models.models, models.patient, lambda: False)

    def vectors_of(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector for each text, none where no model can within a moment: wording decides then."""
        try:
            return embed(texts, BRIEF_S, False)[1]
        except OwlError:
            return ()

    memories = Memories(knowledge.entries, knowledge.passages, knowledge.finder, vectors_of)
    review = SessionReview(base.runs.people, base.runs, memories, lambda: base.settings().sessions.archival.memory_extraction)
    document = MemoryDocument(base.home.box, memories)
    return MemoryParts(memories, MemoryService(memories, document, people), review, document)
