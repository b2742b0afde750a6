"""Methods that a socket offers: the mark `@method`, marked functions ready to be called, and the table of them.

The service that does the work marks its functions; whoever builds the service hands it to a server. Arguments are checked by
the function's signature before it is called, and its result is made JSON-ready afterwards, so that a service may return
its records. A function with a parameter `call` is told who asks, and can stream to the caller. `MethodTable.call` is the one
way in: over the local socket, a WebSocket, or from this process. Knows nothing about sockets, and does not decide who may
call what: `Mark.access` only says it, and the table asks the function that it was given.
"""

import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from appliance.clock import CancelToken, correlation_id
from appliance.errors import BadInput, Conflict, NotFound, OwlError
from appliance.records import to_plain
from appliance.runtime.jsonrpc import NOBODY
from appliance.runtime.rpc.notifications import describe_notifications
from appliance.runtime.signatures import Signature, schema_of, signature
from appliance.store import durability

LOG = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])
FIRST_HALF, LAST_HALF = "\ud800", "\udfff"  # halves of a character: no text that can be stored
Access = Literal["admin", "own", "all"]
RESERVED = ("ping", "discover", "hello", "cancel")  # answered by the server of a connection, not by a service


class MethodMark(NamedTuple):
    """What `@method` notes: the name, whether it streams for long, whether its calls are too many to be news in the log.

    `access` says who may call it where a server tells people apart: admins; everybody for what is theirs ("own"); everybody.
    """

    name: str
    is_long: bool = False
    is_quiet: bool = False
    access: Access = "admin"


def method(name: str, *, access: Access = "admin", is_long: bool = False, is_quiet: bool = False) -> Callable[[F], F]:
    """Mark a function as something the socket offers, under this name. Marks only; nothing is registered."""

    def mark(function: F) -> F:
        function.rpc = MethodMark(name, is_long, is_quiet, access)  # type: ignore[attr-defined]
        return function

    return mark


class Call(Protocol):
    """One request being served, over a socket or in this process: who asks, how to stream back, when to stop."""

    correlation: str
    cancel: CancelToken

    @property
    def uid(self) -> int:
        """The caller's user id, as the kernel says; NOBODY for somebody who was authenticated otherwise."""
        ...

    @property
    def person(self) -> str:
        """The name of somebody who was authenticated otherwise than by the kernel; "" for a user of this machine."""
        ...

    @property
    def client(self) -> str:
        """The name that the caller gave itself: cli, tui, ..."""
        ...

    @property
    def context(self) -> str:
        """The context that the caller asked to work in, `user:NAME` or `group:NAME`; "" for their own."""
        ...

    @property
    def login(self) -> str:
        """The session that the caller logged in to; "" without one."""
        ...

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Stream something to the caller; Lost when it has gone."""
        ...


class LocalCall:
    """A call from this very process."""

    def __init__(
        self,
        notify: Callable[[str, dict[str, Any]], None] = lambda name, params: None,
        client: str = "cli",
        uid: int | None = None,
        context: str = "",
        person: str = "",
    ) -> None:
        """`uid` is another user than the one of this process; `person` is somebody whom the caller of this has authenticated."""
        self.correlation = correlation_id()
        self.cancel = CancelToken()
        self.client = client
        self.context = context
        self.person = person
        self.login = ""
        self.uid = uid if uid is not None else NOBODY if person else os.getuid()
        self.notify = notify


class Method:
    """One function that a socket offers."""

    def __init__(self, mark: MethodMark, function: Callable[..., Any]) -> None:
        self.mark = mark
        self.function = function

    @cached_property
    def signature(self) -> Signature:
        """The arguments from outside; read when first wanted, a command without a core calls few of these."""
        return signature(self.function, skip=("self", "call"))

    @cached_property
    def doc(self) -> str:
        """What the method does, in words."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @cached_property
    def _takes_call(self) -> bool:
        return "call" in inspect.signature(self.function).parameters

    def run(self, call: Call, arguments: Mapping[str, Any]) -> Any:
        """The JSON-ready result for arguments that `signature` has bound."""
        given = {"call": call, **arguments} if self._takes_call else arguments
        result = self.function(**given)
        try:
            return to_plain(result)
        except (TypeError, ValueError, RecursionError):
            LOG.exception("the result of %s is not JSON", self.mark.name)
            raise OwlError("the result cannot be sent", hint="the log has the details") from None

    def call(self, call: Call, /, **params: Any) -> Any:
        """The same with arguments as they come from outside; BadInput names what is wrong with them."""
        return self.run(call, self.signature.bind(params))


Entitle = Callable[[Call, MethodMark, dict[str, Any]], AbstractContextManager[object]]


class MethodTable:
    """Every method that is offered, with the rule who may call what; where a call comes from makes no difference."""

    def __init__(self, *owners: object, entitle: Entitle = lambda call, mark, arguments: nullcontext()) -> None:
        """`entitle` refuses a call, or restricts what it is shown for as long as it lasts."""
        self._entitle = entitle
        self._methods: dict[str, Method] = {}
        self.offer(*owners)

    def __contains__(self, name: object) -> bool:
        return name in self._methods

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(sorted(self._methods))

    def offer(self, *owners: object) -> None:
        """Offer every function that the owners marked with `@method`."""
        for owner in owners:
            for name, found in find_methods(owner).items():
                self.add(name, found)

    def add(self, name: str, found: Method) -> None:
        """Offer a method under a name; Conflict when the name is taken."""
        if name in self._methods or name in RESERVED:
            raise Conflict(f"method {name} is offered twice")
        self._methods[name] = found

    def mark(self, name: str) -> MethodMark | None:
        """The record of a method; None for an unknown name."""
        return self._methods[name].mark if name in self._methods else None

    def call(self, call: Call, name: str, params: Mapping[str, Any]) -> Any:
        """The JSON-ready result for arguments as they come from outside; what was written is safe when it returns."""
        if name not in self._methods:
            raise NotFound(f"unknown method {name}", hint="discover lists the methods")
        found = self._methods[name]
        arguments = found.signature.bind(params)
        with self._entitle(call, found.mark, arguments), durability.asked():
            try:
                return found.run(call, arguments)
            except UnicodeEncodeError as error:  # names of files may hold such characters, so that they are not refused at once
                if not FIRST_HALF <= error.object[error.start] <= LAST_HALF:
                    raise
                hint = "send whole characters"
                raise BadInput(f"a text holds half of a character: {error.object[error.start]!a}", hint=hint) from None

    def describe(self) -> dict[str, Any]:
        """Every method by name: what it does, the schemas of its arguments and its result, who may call it; and what is sent."""
        methods = {
            name: {
                "doc": one.doc,
                "params": one.signature.schema(),
                "result": schema_of(one.signature.returns),
                "access": one.mark.access,
                "is_long": one.mark.is_long,
            }
            for name, one in sorted(self._methods.items())
        }
        return {"methods": methods, "notifications": describe_notifications()}


@lru_cache(maxsize=256)  # each attribute of fifty classes is looked at, for every table of a process
def find_marks(owner: type[Any]) -> Mapping[str, MethodMark]:
    """The marks of a class, by the attribute that is marked."""
    marks = {name: getattr(getattr(owner, name), "rpc", None) for name in dir(owner)}
    return {name: mark for name, mark in marks.items() if isinstance(mark, MethodMark)}


def find_methods(*owners: object) -> dict[str, Method]:
    """The marked functions of these objects, by the name that the socket offers them under."""
    marked = ((owner, name, mark) for owner in owners for name, mark in find_marks(type(owner)).items())  # type: ignore[arg-type]
    return {mark.name: Method(mark, getattr(owner, name)) for owner, name, mark in marked}
