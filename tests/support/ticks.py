"""What tests of work on tasks share."""

from appliance.work.worker_log import Shown


class Silent:
    """Phases of work that nobody is told of."""

    def say(self, phase: str, text: str = "") -> None: ...

    def note(self, text: str) -> None: ...

    def show(self, item: Shown) -> None: ...
