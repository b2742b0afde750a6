"""Builds what accepts messages: the inbox of people, and messages that schedules send."""

from appliance.agent.loop import Loops
from appliance.channels import session_control
from appliance.channels.inbox import Inbox
from appliance.channels.scheduled_messages import ScheduledMessages
from appliance.channels.session_control import Control
from appliance.memory.session_review import SessionReview
from appliance.prompt.packet import Packets
from appliance.records import Inbound, Part
from appliance.service.parts.base import BaseParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.models import ModelParts
from appliance.service.parts.queue import QueueParts
from appliance.service.parts.schedules import ScheduleParts
from appliance.service.parts.tools import ToolParts
from appliance.store import visibility
from appliance.work.firing import Effect
from appliance.work.jobs import Jobs

ELSEWHERE = 6  # messages from other channels that are shown with the next one on this channel


def build_inbox(
    base: BaseParts, knowledge: KnowledgeParts, packets: Packets, queue: QueueParts, tools: ToolParts, loops: Loops
) -> Inbox:
    """Messages are shown with notes that fit them."""

    def find_relevant(inbound: Inbound) -> str:
        """Notes that fit a message, and what the same person said on other channels meanwhile."""
        told = knowledge.history.elsewhere(inbound.session, inbound.sender_id, ELSEWHERE)
        session = base.runs.people.find(inbound.session)
        with visibility.showing(session.context if session is not None else f"user:{inbound.sender_id}"):
            return packets.relevant(inbound.text, [Part(one.run, f"{one.label} {one.text}") for one in told])

    return Inbox(
        *(base.store, base.runs, loops),
        relevant=find_relevant,
        outbox=queue.outbox,
        approvals=tools.approvals,
        skills=knowledge.skill_service,
        passed=base.passed,
    )


def build_scheduled_messages(
    base: BaseParts, inbox: Inbox, queue: QueueParts, schedules: ScheduleParts, jobs: Jobs
) -> ScheduledMessages:
    """Schedules that say something or ask the assistant do it through the inbox, so they need a core."""
    lineage, keys = schedules.timetable.lineage, lambda: base.settings().scheduler
    messages = ScheduledMessages(inbox, queue.courier, schedules.effects, jobs, lineage, keys)
    schedules.firing.register("message", Effect(messages.say, is_inside=False, needs_core=True))
    schedules.firing.register("prompt", Effect(messages.prompt, is_inside=False, needs_core=True))
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
