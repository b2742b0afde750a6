"""The commands about what models cost: `owlbox usage`, and of `owlbox model` those about providers, made from their methods."""

import argparse
from typing import Any

from appliance.console.verbs import Verb, table

MICROS = 1_000_000
OWN = "(the box itself)"


def _tell_sums(args: argparse.Namespace, found: list[dict[str, Any]]) -> Any:
    """Sums, and where there are several what they are together."""
    total = {"name": "together"} | {name: sum(one[name] for one in found) for name in (found[0] if found else ()) if name != "name"}
    rows = [*found, total] if len(found) > 1 else found
    return table(rows, f"{args.by}=name requests prompt cached output cost", SUM_CELLS, "no requests")


def _format_cost(one: dict[str, Any]) -> str:
    unknown = f" and {one['unpriced']} of unknown price" if one["unpriced"] else ""
    return f"{dollars(one['cost_micros'])}{unknown}"


def _tell_providers(args: argparse.Namespace, found: dict[str, Any]) -> Any:
    """Health, limits and spending."""
    if found["is_local_only"]:
        return "models.local_only is true: no provider is ever asked"
    rows = table(found["providers"], "provider=name state~ last_minute=minute open waiting", PROVIDER_CELLS, "")
    return rows._replace(foot=[spent(found["spending"])]) if rows.rows else "no provider is configured; see docs/guides/models.md"


def _tell_remote(args: argparse.Namespace, found: list[dict[str, Any]]) -> Any:
    """Models of providers, and the providers that could not be asked."""
    problems = [f"{one['provider']}: {one['problem']}" for one in found if one.get("problem")]
    rows = [one for one in found if not one.get("problem")]
    if not found:
        return "no provider is configured, or models.local_only is true; docs/guides/models.md tells how"
    known = table(rows, "model=name window read,_$/M=input_usd written,_$/M=output_usd", MODEL_CELLS, "no models")
    return known._replace(foot=problems)


def state(one: dict[str, Any]) -> str:
    """How a provider is doing, in words."""
    if one["state"] == "skipped":
        return f"left alone for {one['retry_s']:.0f} s after {one['failures']} failures: {one['problem']}"
    return f"failed {one['failures']} times: {one['problem']}" if one["state"] == "failing" else "ok"


def spent(found: dict[str, Any]) -> str:
    """What is spent, beside its limits, in words."""
    limits = found.get("limits", {})
    parts = []
    for key, words in (("day_usd", "today"), ("month_usd", "this month")):
        limit = f" of {dollars(round(limits[key] * MICROS))}" if key in limits else ""
        parts.append(f"{dollars(round(found[key] * MICROS))}{limit} {words}")
    limit = f" of {limits['day_tokens']}" if "day_tokens" in limits else ""
    return f"spent {', '.join(parts)}, {found['day_tokens']}{limit} tokens today"


def dollars(micros: int) -> str:
    """An amount for people, as `prices` has it; a test compares the two."""
    value = micros / MICROS
    return f"${value:.2f}" if micros == 0 or value >= 0.1 else f"${value:.4f}"


def _format_price(usd: float | None) -> str:
    return "?" if usd is None else f"{usd:g}"


SUM_CELLS = {"name": lambda one: one["name"] or OWN, "cost": _format_cost}
PROVIDER_CELLS = {"state": state, "minute": lambda one: f"{one['minute']} of {one['per_minute']}"}
MODEL_CELLS = {
    "window": lambda one: str(one["window"] or "?"),
    "input_usd": lambda one: _format_price(one["input_usd"]),
    "output_usd": lambda one: _format_price(one["output_usd"]),
}
# fmt: off
NOUNS = (
    Verb("usage", "usage.sums", text="tokens and costs of model requests", says=_tell_sums,
         helps={"by": "what to add up by", "days": "how many days back, today included (31)"}),
)
OF_MODELS = (
    Verb("providers", "model.providers", text="state and spending of each provider", says=_tell_providers),
    Verb("remote", "model.remote", text="list every model of the configured providers", says=_tell_remote),
    Verb("reset", "model.reset", "provider?", says=lambda args, done: f"{args.provider or 'every provider'} is asked again"),
)
