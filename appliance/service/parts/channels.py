"""Builds what accepts messages: the inbox of people, and messages that schedules send."""

from typing import Any

from appliance.agent.loop import Loops
from appliance.channels import session_control
from appliance.channels.connections import Connections
from appliance.channels.gateway import Parts as GatewayParts
from appliance.channels.inbox import Inbox
from appliance.channels.rpc.connectors import PushMethods
from appliance.channels.rpc.uploads import Uploads
from appliance.channels.scheduled_messages import ScheduledMessages
from appliance.channels.session_control import Control
from appliance.errors import OwlError
from appliance.ingest.receiver import Intake
from appliance.memory.session_review import SessionReview
from appliance.prompt.packet import Packets
from appliance.records import Inbound, Part
from appliance.sandbox.workspace import Workbench
from appliance.secrets.vault_client import VaultClient
from appliance.service.parts.base import BaseParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.models import ModelParts
from appliance.service.parts.queue import QueueParts
from appliance.service.parts.schedules import ScheduleParts
from appliance.service.parts.tools import ToolParts
from appliance.service.parts.web import WebParts
from appliance.sessions.people import LOCAL, Identity
from appliance.sessions.push_subscriptions import Subscriptions
from appliance.store import visibility
from appliance.work.firing import FiringEffect
from appliance.work.jobs import Jobs

ELSEWHERE = 6  # messages from other channels that are shown with the next one on this channel


def build_inbox(
    base: BaseParts, knowledge: KnowledgeParts, packets: Packets, queue: QueueParts, tools: ToolParts, loops: Loops
) -> Inbox:
    """Messages are shown with notes that fit them."""

    def find_relevant(inbound: Inbound) -> str:
        """Notes that fit a message, and what the same person said on other channels meanwhile."""
        person = base.people.resolve(inbound.channel, inbound.sender_id)
        told = knowledge.history.elsewhere(inbound.session, person, ELSEWHERE)
        session = base.runs.people.find(inbound.session)
        with visibility.showing(session.context if session is not None else inbound.context or f"user:{person}"):
            return packets.relevant(inbound.text, [Part(one.run, f"{one.label} {one.text}") for one in told])

    def list_copies(session: dict[str, Any], origin: str) -> list[Identity]:
        """The other addresses of a person, on channels that are connected, which see what is said in their shared session."""
        live = queue.courier.live_channels()
        if not live or session["id"] != f"{LOCAL}:{session['person']}":
            return []
        known = base.people.identities(session["person"])
        return [one for one in known if one.channel in live and one.channel != origin and one.reply]

    return Inbox(
        *(base.store, base.runs, loops),
        relevant=find_relevant,
        outbox=queue.outbox,
        approvals=tools.approvals,
        skills=knowledge.skill_service,
        passed=base.passed,
        copies=list_copies,
    )


def build_connections(
    base: BaseParts, known: KnowledgeParts, web: WebParts, inbox: Inbox, queue: QueueParts, vault: VaultClient, bench: Workbench
) -> tuple[Connections, PushMethods]:
    """The channels to people elsewhere, and what people do with subscriptions of devices."""
    subscriptions = Subscriptions(base.store, base.people, queue.outbox, base.events, lambda: base.settings().channels)
    services = {"inbox": inbox, "secret": vault.get, "keep_secret": vault.put, "store": base.store}
    services |= {"home": base.home, "data_folder": bench.folder, "entries": known.entries, "calendars": known.calendars}
    services |= {"fetch_file": web.web.file, "fetch": web.web.fetch, "subscriptions": subscriptions}
    services |= {"fetch_configured": web.web.configured, "listener": None}  # which a serving core has
    parts = GatewayParts(base.store, base.runs, base.people, inbox, bench.folder, base.events)
    made = Connections(queue.courier, base.events, lambda: base.settings().channels, services, parts, make=web.lookups.make)
    return made, PushMethods(subscriptions, made, base.people)


def build_scheduled_messages(
    base: BaseParts, inbox: Inbox, queue: QueueParts, schedules: ScheduleParts, jobs: Jobs
) -> ScheduledMessages:
    """Schedules that say something or ask the assistant do it through the inbox, so they need a core."""
    lineage, keys = schedules.timetable.lineage, lambda: base.settings().scheduler
    messages = ScheduledMessages(inbox, queue.courier, schedules.effects, jobs, lineage, keys)
    schedules.firing.register("message", FiringEffect(messages.say, is_inside=False, needs_core=True))
    schedules.firing.register("prompt", FiringEffect(messages.prompt, is_inside=False, needs_core=True))
    return messages


def build_session_control(
    base: BaseParts,
    models: ModelParts,
    knowledge: KnowledgeParts,
    inbox: Inbox,
    review: SessionReview,
) -> Control:
    """What people do with sessions; one that is archived is reviewed."""
    return session_control.build(
        *(base.store, base.runs, inbox, knowledge.views, models.models.plan),
        history=knowledge.history,
        is_served=base.is_shared,
        review=review,
    )


def build_uploads(base: BaseParts, models: ModelParts, intake: Intake) -> Uploads:
    """Files that come with messages."""

    def sees_images() -> bool:
        """Whether the route that would answer now is one whose models see pictures; False where none could."""
        try:
            routes = models.models.plan()
        except OwlError:
            return False
        provider = base.settings().providers.get(routes[0].provider) if routes else None
        return provider is not None and provider.images

    return Uploads(base.uploads, intake, base.environ, sees_images)
