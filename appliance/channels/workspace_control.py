"""What people do with the workspace: have files followed, protected or ignored, in a run or in all.

A pattern that is followed in a run is promoted there, as long as the run has room for what fits. Owns no table; the
constraints are those of `ingest/workspace_sync`.
"""

from collections.abc import Callable
from typing import Literal

from appliance.errors import BadInput, NotFound, TooLarge
from appliance.ingest.workspace_sync import Kind, Project
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor
from appliance.records import Outcome


class WorkspaceControl:
    """Sets constraints as a person gives them."""

    def __init__(self, project: Project, verbs: Verbs, require_room: Callable[[str, int], object]) -> None:
        """`require_room` raises TooLarge when a run has no room for so many tokens more."""
        self._project = project
        self._verbs = verbs
        self._require_room = require_room

    def follow(self, actor: Actor, pattern: str, kind: Kind | Literal["none"], *, has_repo: bool = True) -> Outcome:
        """A constraint as a person gives it: `none` removes one; in a run, what fits is promoted there."""
        try:
            if kind == "none":
                self._project.release(pattern)
                return Outcome(200, "ok", f"{pattern}: no constraint any more")
            if actor.run:
                return self.persist(actor, pattern, kind, has_repo=has_repo)
            return Outcome(200, "ok", f"{self._project.constrain(pattern, kind).pattern}: {kind} from now on")
        except (BadInput, NotFound, TooLarge) as error:
            return Outcome(error.status, error.outcome, error.message, error.hint)

    def persist(self, actor: Actor, pattern: str, kind: Kind, *, has_repo: bool = True) -> Outcome:
        """Set a constraint and promote what fits the pattern in the actor's run; a run without room keeps the constraint."""
        path = self._project.constrain(pattern, kind).pattern
        if self._project.root is None:
            return Outcome(404, "not_found", "there is no workspace", "set sandbox.workspace in owlbox.toml")
        fitting = self._project.sync_fitting(path, is_all=has_repo)
        if kind == "ignore":
            return Outcome(200, "ok", f"{path}: ignored from now on")
        self._require_room(actor.run, self._project.count_new_tokens(actor.run, fitting))
        return self._verbs.get(actor, path)
