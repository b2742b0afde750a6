"""The tool that starts a worker: spawn_worker. Somebody else then works on tasks while the conversation goes on."""

from dataclasses import dataclass
from typing import Annotated

from appliance.agent.toolbox import Caller, tool
from appliance.errors import NotFound
from appliance.sessions.runs import Runs
from appliance.work.tasks import Tasks
from appliance.work.worker_control import Crew


@dataclass(frozen=True)
class Spawned:
    """A worker that has started."""

    worker_id: str
    worker_pid: int
    mode: str
    message: str

    def text(self) -> str:
        """One line."""
        return self.message


@tool(group="workers", menu=())
def spawn_worker(
    task_id: Annotated[int | None, "only this task; else the next one that is due"] = None,
    persist: Annotated[bool, "go on until it is stopped"] = False,
    *,
    crew: Crew,
    tasks: Tasks,
    runs: Runs,
    caller: Caller,
) -> Spawned:
    """Start a worker that does tasks in the background; it goes on when this conversation ends."""
    if task_id is not None and caller.run:
        # Somebody else's task: not even its being there is told.
        person = runs.person(caller.session or runs.get(caller.run).session)
        found = tasks.find(task_id)
        if found is None or not person or found.person != person:
            raise NotFound(f"no task {task_id}", hint="list_tasks shows them")
    made = crew.start("persist" if persist else "once", task_id)
    return Spawned(made["id"], made["pid"], made["mode"], made["message"])
