"""The commands about roles and delegated work: `owlbox role` and `owlbox job`, made from the definitions of their methods."""

from appliance.console.verbs import Noun, Verb

JOB = {"id": "its id, as `job list` shows it"}
ROLE = (
    "name description file=is_own preset pool turns=max_turns temperature seconds=timeout_s tools shown=menu documents sandbox "
    "problem=problems text"
)
ROLE_CELLS = {
    "is_own": lambda one: f"box/roles/{one['name']}.md" if one["is_own"] else "the one that ships",
    "preset": lambda one: one["preset"] if one["name"] == "assistant" else "",
    "pool": lambda one: one["pool"] or "the default one",
    "max_turns": lambda one: str(one["max_turns"] or "as runs.max_turns says"),
    "temperature": lambda one: "as models.temperature says" if one["temperature"] is None else f"{one['temperature']:g}",
    "documents": lambda one: "all" if one["documents"] is None else ", ".join(one["documents"]),
    "text": lambda one: one["text"] and f"\n{one['text']}",
}
TOOK = {"duration_s": lambda one: f"{one['duration_s']:.1f} s"}
JOB_FIELDS = "job=id role state=status took=duration_s attempts asked=task thread=run result"

# fmt: off
NOUNS = (
    Noun("role", "roles: tools and limits of models", (
        Verb("list", "role.list", text="list roles",
             rows="role=name file=is_own pool turns=max_turns tools about=description~",
             cells={"is_own": lambda one: "yours" if one["is_own"] else "", "pool": lambda one: one["pool"] or "-",
                    "tools": lambda one: "all" if one["tools"] is None else str(len(one["tools"]))}),
        Verb("view", "role.view", text="show one role", fields=ROLE, cells=ROLE_CELLS, helps={"name": "as `role list` shows it"}),
    )),
    Noun("job", "delegated work", (
        Verb("list", "job.list", text="newest first", rows="job=id role state=status took=duration_s task~", empty="no jobs",
             cells=TOOK),
        Verb("view", "job.view", text="show a job and its result", fields=JOB_FIELDS, cells=TOOK, helps=JOB),
        Verb("stop", "job.stop", fields=JOB_FIELDS, cells=TOOK, helps=JOB),
    )),
)
