"""Builds what is remembered of people, and what looks conversations through for it."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from appliance.errors import OwlError
from appliance.knowledge.indexer import BRIEF_S, embedding
from appliance.memory.memories import Memories
from appliance.memory.memory_document import MemoryDocument
from appliance.memory.memory_service import MemoryService
from appliance.memory.session_review import SessionReview
from appliance.service.parts.base import BaseParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.models import ModelParts


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
