"""Takes what people write into box/ and drop/ into use: watched by a service, compared by a command.

Built last, because a changed file may be a note, a skill, a schedule or a request.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from appliance.agent.plugins import Plugins
from appliance.ingest.watcher import Watch, walk
from appliance.memory.memory_document import MemoryDocument
from appliance.service.parts.base import BaseParts
from appliance.service.parts.heartbeat import HeartbeatParts
from appliance.service.parts.knowledge import KnowledgeParts
from appliance.service.parts.queue import QueueParts


class BoxFolder:
    """The files of box/ as one core knows them; only `serve` starts `watch`."""

    def __init__(
        self,
        base: BaseParts,
        knowledge: KnowledgeParts,
        queue: QueueParts,
        heartbeat: HeartbeatParts,
        plugins: Plugins,
        memory: MemoryDocument,
    ) -> None:
        self._memory = memory
        self._box = base.home.box
        self._folder, self._skills = knowledge.folder, knowledge.skills
        self._queue, self._heartbeat, self._plugins = queue, heartbeat, plugins
        self.watch = Watch(self._box, self._folder.known_files, self._take, beside=[base.home.drop] if base.is_shared else [])

    def compare(self) -> None:
        """Take what changed in box/ while nobody watched it: for a command that runs without a core."""
        tree = walk(self._box)
        if str(self._box) not in tree.folders:
            return  # it is away, and may come back: what it held stays known
        shut = [Path(folder) for folder in tree.closed]
        known = [path for path in self._folder.known_files() if not any(path.is_relative_to(folder) for folder in shut)]
        self._take(sorted({*map(Path, tree.files), *known}))

    def status(self) -> dict[str, Any]:
        """The state of box/, and the problems of its files."""
        problems = [*self._plugins.problems, *self._folder.problems, *self._skills.problems]
        found = {"path": str(self._box), "state": self.watch.state, "problems": problems[:20], "problem_count": len(problems)}
        return {**found, "unread": self._folder.describe_unread()}

    def _take(self, paths: Sequence[Path]) -> None:
        """Files of box/ or drop/ have changed."""
        inside = [path for path in paths if path.is_relative_to(self._box.resolve())]
        self._folder.sync_paths(inside)
        self._skills.take(inside)
        self._memory.take(inside)
        self._heartbeat.look(inside)
        if len(inside) < len(paths):
            try:
                self._queue.drops.take_files()
            finally:
                self._queue.changed()  # as in `take_drops`
