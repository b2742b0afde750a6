"""Which route is asked next, and when, after one has failed; up to the first word of an answer.

The routes of a pool are tried in their order, each once. Only when none is left that was not tried, those are asked
again whose failure may pass by itself: after too many requests or while a model is loaded for up to ten minutes, for a
minute after an error of the server, for half a minute after one on the way there. A service that says when to come
back is not asked before. A prompt too long for one route goes to wider ones only, unless that one turns out to
read less than was thought: then it is asked once more, with less. Once something was said the caller
must not go on here: nothing is said twice. Knows nothing about sockets, packets or services.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec import field as struct_field
from msgspec.structs import replace

from appliance.clock import monotonic_s
from appliance.errors import BadInput, Cancelled, OwlError, ProviderError, TooLarge, Trouble, Unavailable
from appliance.records import Ask, Cancel, Finish, Model, Piece, Route

LOG = logging.getLogger(__name__)
FIRST_PAUSE_S = 1.0
ALL_S = float("inf")  # as long as the whole call may take
# For how long after its first failure a route is asked again, by the kind of trouble; others not at all.
AGAIN_S: Mapping[str, float] = {"rate": ALL_S, "warm-up": ALL_S, "gateway": 30.0, "server": 60.0, "network": 30.0}
WAITS_FOR = {
    "rate": "has had too many requests",
    "warm-up": "is loading its model",
    "gateway": "cannot be reached",
    "server": "has trouble",
    "network": "cannot be reached: waiting for the network",
}


class CallPatience(Struct, frozen=True):
    """How long a call may take with all its repetitions, the longest pause, and when which trouble is given up."""

    total_s: float = 600.0
    pause_s: float = 30.0
    again_s: Mapping[str, float] = struct_field(default_factory=lambda: AGAIN_S)
    first_s: float = FIRST_PAUSE_S

    def limit_s(self, error: OwlError | None) -> float:
        """For how long after it a route is asked again; 0 for not at all."""
        kind = error.kind if isinstance(error, ProviderError) else ""
        return min(self.total_s, self.again_s.get(kind, 0.0))


class _Try(Struct):
    """The state of one route."""

    route: Route
    error: OwlError | None = None
    first_s: float = 0.0
    due_s: float = 0.0
    count: int = 0
    is_narrowed: bool = False


class Chance(Struct, frozen=True):
    """The next route to ask; after a pause when `wait_s` is more than 0. `why` is what a person is told, `about` names that."""

    route: Route
    wait_s: float = 0.0
    why: str = ""
    is_again: bool = False
    about: str = ""


class Chain:
    """The routes of one call of a model."""

    def __init__(
        self, routes: Sequence[Route], patience: CallPatience | None = None, *, now: Callable[[], float] = monotonic_s
    ) -> None:
        self._tries = [_Try(route) for route in routes]
        self._patience = patience or CallPatience()
        self._now = now
        self._began_s = now()
        self._last: OwlError | None = None
        self._asked: _Try | None = None

    def next(self) -> Chance:
        """Whom to ask now, or after a pause that the caller makes; the error that ends it all when nobody is left."""
        fresh = next((one for one in self._tries if one.count == 0), None)
        if fresh is not None:
            before, self._asked = self._asked, fresh
            if before is None or before.error is None:
                return Chance(fresh.route)
            why = f"{before.error.message}; {fresh.route.name} is asked instead"
            return Chance(fresh.route, why=why, about=f"{before.route.name} {before.error.outcome}")
        now_s = self._now()
        again = [one for one in self._tries if self._may_again(one)]
        if not again:
            raise self._final_error()
        first = min(again, key=lambda one: one.due_s)
        self._asked = first
        wait_s = max(0.0, first.due_s - now_s)
        why = f"{first.route.provider or first.route.name} {WAITS_FOR.get(_kind_of(first.error), 'failed')}"
        return Chance(first.route, wait_s, why, True, why)

    def narrowed(self, route: Route) -> bool:
        """Ask the route of the last `next` again as `route`, if that reads less than was thought, or calls tools in words alone."""
        asked = self._asked
        if asked is None or route.name != asked.route.name:
            return False
        is_smaller = 0 < route.window < asked.route.window and not asked.is_narrowed
        is_wordy = asked.route.dialect == "native" != route.dialect
        if is_smaller or is_wordy:
            asked.route, asked.count, asked.is_narrowed = route, 0, asked.is_narrowed or is_smaller
        return is_smaller or is_wordy

    def left_s(self) -> float:
        """The seconds that remain for the next attempt."""
        return max(1.0, self._began_s + self._patience.total_s - self._now())

    def failed(self, error: OwlError) -> None:
        """The route of the last `next` failed before it said anything. Raises what no other route would mend."""
        asked = self._asked
        assert asked is not None, "next comes first"
        if isinstance(error, BadInput | Cancelled):
            raise error
        now_s = self._now()
        self._last = error
        asked.first_s = asked.first_s if asked.count else now_s
        asked.count += 1
        asked.error = error
        asked.due_s = self._due_s(asked, error)
        if isinstance(error, TooLarge):
            self._tries = [one for one in self._tries if one is asked or one.count or one.route.window > asked.route.window]
        self._log_failure(asked.route, error)

    def _due_s(self, asked: _Try, error: OwlError) -> float:
        """When to ask again: when the service says, else after a pause twice as long each time, once more at the very end."""
        now_s = self._now()
        if isinstance(error, ProviderError) and error.retry_after_s:
            return now_s + error.retry_after_s
        pause_s = min(self._patience.pause_s, self._patience.first_s * 2.0 ** (asked.count - 1))
        return min(now_s + pause_s, self._end_s(asked))

    def _end_s(self, one: _Try) -> float:
        """When a route is given up."""
        return min(one.first_s + self._patience.limit_s(one.error), self._began_s + self._patience.total_s)

    def _may_again(self, one: _Try) -> bool:
        """Whether trying it again makes sense: its trouble may pass, and it may be asked before the time is over."""
        end_s = self._end_s(one)
        return not isinstance(one.error, TooLarge) and one.due_s <= end_s and self._now() < end_s

    def _final_error(self) -> OwlError:
        """The error for the caller: the last one, or, when no service of several can be reached, just that."""
        if self._last is None:
            return Unavailable("no model can be asked", hint="owlbox doctor says what is missing")
        errors = [one.error for one in self._tries if one.error is not None]
        too_long = next((error for error in errors if isinstance(error, TooLarge)), None)
        if too_long is not None:
            return too_long  # what can be mended comes first: the caller sends less
        if len(errors) > 1 and all(is_away(error) for error in errors):
            named = "; ".join(f"{one.route.name}: {one.error.message}" for one in self._tries if one.error is not None)
            is_offline = all(_kind_of(error) == "network" and error.outcome == "provider_not_available" for error in errors)
            return ProviderError(
                f"no model can be reached: {named}",
                hint=self._last.hint,
                outcome="provider_not_available",
                kind="network" if is_offline else "",
            )
        return self._last

    def _log_failure(self, route: Route, error: OwlError) -> None:
        level = logging.WARNING if error.outcome == "authentication_failed" else logging.INFO
        LOG.log(level, "route %s failed before it answered: %s", route.name, error, extra={"result": error.outcome})


def denied(route: str) -> Unavailable:
    """The error for a remote route while `models.local_only` holds."""
    hint = "set models.local_only = false to allow it"
    return Unavailable(f"route {route} is remote and models.local_only is true", hint=hint)


def is_away(error: OwlError) -> bool:
    """True when nobody was there to ask, rather than that somebody said no."""
    return error.outcome == "provider_not_available" or _kind_of(error) == "network"


def _kind_of(error: OwlError | None) -> Trouble:
    return error.kind if isinstance(error, ProviderError) else ""


def pauses(chance: Chance, cancel: Cancel, longest_s: float) -> Iterator[float]:
    """Make a chance's pause in steps of at most `longest_s`, giving what is left before each; Cancelled when stopped."""
    left_s = chance.wait_s
    while left_s > 0:
        yield left_s
        step_s = min(left_s, longest_s)
        if cancel.wait(step_s):
            raise Cancelled("stopped while waiting for the model")
        left_s -= step_s


def generate(
    model: Model, routes: Sequence[Route], ask: Ask, cancel: Cancel, patience: CallPatience | None = None
) -> Iterator[Piece | Finish]:
    """An answer from the first route that begins one, for work that needs no packet made for a route."""
    patience = patience or CallPatience(total_s=ask.deadline_s)
    chain = Chain(routes, patience)
    while True:
        chance = chain.next()
        for _ in pauses(chance, cancel, patience.pause_s):
            pass
        has_begun = False
        left_s = min(ask.deadline_s, chain.left_s())
        asked = replace(ask, dialect=chance.route.dialect, is_retry=chance.is_again, deadline_s=left_s)
        try:
            for piece in model.generate(chance.route, asked, cancel):
                has_begun |= isinstance(piece, Finish) or not piece.tool  # of a call nobody has seen anything yet
                yield piece
            return
        except OwlError as error:
            if has_begun:
                raise
            chain.failed(error)
