"""The caps of the agent out of the configuration."""

from appliance.agent.agent import Limits
from appliance.runtime.settings import Config


def limits(settings: Config) -> Limits:
    """The agent's caps from the configuration."""
    return Limits(
        max_turns=settings.runs.max_turns,
        max_commands=settings.runs.max_commands,
        max_strikes=settings.runs.max_strikes,
        max_cycles=settings.runs.max_cycles,
        max_period=settings.runs.max_period,
        history_messages=settings.budget.history_messages,
        temperature=settings.models.temperature,
        max_output_tokens=settings.models.max_output_tokens,
        deadline_s=settings.llm.deadline_ms / 1000,
        pause_s=settings.llm.max_backoff_ms / 1000,
    )
