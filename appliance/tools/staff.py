"""The tool that starts a worker: spawn_worker. Somebody else then works on tasks while the conversation goes on."""

from typing import Annotated, TypedDict

from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, tool
from appliance.errors import NotFound
from appliance.sessions.runs import Runs
from appliance.work.tasks import TaskRows
from appliance.work.worker_control import WorkerManager


class Spawned(TypedDict):
    worker_id: str
    worker_pid: int
    mode: str
    message: str


@tool(group="workers", menu=())
def spawn_worker(
    task_id: Annotated[int | None, "only this task; else the next one that is due"] = None,
    persist: Annotated[bool, "go on until it is stopped"] = False,
    *,
    crew: WorkerManager,
    tasks: TaskRows,
    runs: Runs,
    caller: Caller,
) -> Reply[Spawned]:
    """Start a worker that does tasks in the background; it goes on when this conversation ends."""
    if task_id is not None and caller.run:
        # Somebody else's task: not even its being there is told.
        person = runs.person(caller.session or runs.get(caller.run).session)
        found = tasks.find(task_id)
        if found is None or not person or found.person != person:
            raise NotFound(f"no task {task_id}", hint="list_tasks shows them")
    made = crew.start(persist, task_id)
    message = made["message"]
    return Reply({"worker_id": made["id"], "worker_pid": made["pid"], "mode": made["mode"], "message": message}, message)
