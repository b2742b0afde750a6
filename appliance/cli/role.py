"""The commands about roles and delegated work: `owlbox role` and `owlbox job`, made from the definitions of their methods."""

import argparse
from typing import Any

from appliance.console.verbs import Noun, Verb

JOB = {"id": "its id, as `job list` shows it"}


def _tell_role(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    """Everything about one role."""
    facts = {
        "file": f"box/roles/{found['name']}.md" if found["is_own"] else "the one that ships",
        "preset": found["preset"] if found["name"] == "assistant" else "",
        "pool": found["pool"] or "the default one",
        "turns": found["max_turns"] or "as runs.max_turns says",
        "temperature": "as models.temperature says" if found["temperature"] is None else f"{found['temperature']:g}",
        "seconds": f"{found['timeout_s']:g}" if found["timeout_s"] else "",
        "tools": ", ".join(found["tools"]),
        "shown": ", ".join(found["menu"]),
        "documents": "all" if found["documents"] is None else ", ".join(found["documents"]),
        "sandbox": found["sandbox"],
    }
    lines = [": ".join(part for part in (found["name"], found["description"]) if part)]
    lines += [f"{name}: {fact}" for name, fact in facts.items() if fact]
    lines += [f"problem: {problem}" for problem in found["problems"]]
    return [*lines, *(["", *found["text"].splitlines()] if found["text"] else [])]


def _tell_job(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    """One piece of work, and what came of it."""
    tries = f"{found['attempts']} attempt{'s' if found['attempts'] != 1 else ''}"
    lines = [f"job {found['id']}: {found['role']}, {found['status']} after {found['duration_s']:.1f} s, {tries}"]
    lines += f"asked: {found['task']}".splitlines()
    lines += [f"thread: {found['run']}"] if found["run"] else []
    return [*lines, *(f"result: {found['result']}".splitlines() if found["result"] else [])]


# fmt: off
NOUNS = (
    Noun("role", "roles: tools and limits of models", (
        Verb("list", "role.list", text="list roles",
             rows="role=name file=is_own pool turns=max_turns tools about=description~",
             cells={"is_own": lambda one: "yours" if one["is_own"] else "", "pool": lambda one: one["pool"] or "-",
                    "tools": lambda one: "all" if one["tools"] is None else str(len(one["tools"]))}),
        Verb("view", "role.view", text="show one role", says=_tell_role, helps={"name": "as `role list` shows it"}),
    )),
    Noun("job", "delegated work", (
        Verb("list", "job.list", text="newest first", rows="job=id role state=status took=duration_s task~", empty="no jobs",
             cells={"duration_s": lambda one: f"{one['duration_s']:.1f} s"}),
        Verb("view", "job.view", text="show a job and its result", says=_tell_job, helps=JOB),
        Verb("stop", "job.stop", says=_tell_job, helps=JOB),
    )),
)
