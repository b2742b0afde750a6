"""Local models lent to programs as they are: a conversation and texts go in, words and vectors come out.

Nothing of the installation is added: no instructions, notes, tools or memory, and nothing is recorded but what it took. Remote
models are not lent: what they cost is not a program's to spend. People's questions go first, as with any other request.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from msgspec import Struct

from appliance.errors import BadInput, NotFound, Refused
from appliance.models.client import Models
from appliance.records import Ask, Finish, Message, Part, Route
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name

LOCAL, EMBED = "local", "embed"
PENALTY = 1.1  # without it small models say the same again and again
MAX_MESSAGES, MAX_CHARS, MAX_TEXTS = 500, 400_000, 256


class ChatMessage(Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class RawChat:
    """Methods for programs that want a model and no assistant."""

    def __init__(self, models: Models, list_names: Callable[[], Iterable[str]]) -> None:
        """`list_names` are the local models that can be asked, the one that answers first."""
        self._models = models
        self._list_names = list_names

    @method("model.names", access="all")
    def names(self) -> dict[str, list[str]]:
        """The names that `model.chat` and `model.embed` take; "local" is the model that answers."""
        return {"chat": [LOCAL, *dict.fromkeys(self._list_names())], "embed": [EMBED]}

    @method("model.chat", access="own", is_long=True)
    def chat(
        self,
        call: Call,
        messages: Annotated[list[ChatMessage], "the conversation, the question last"],
        model: Annotated[str, Range(0, 200), "as model.names says; empty is the one that answers"] = "",
        temperature: Annotated[float, "0 to 2"] = 0.7,
        max_tokens: Annotated[int, Range(1, 100_000), "of the answer"] = 512,
        stop: Annotated[list[str], "end before one of these"] = [],  # noqa: B006
    ) -> dict[str, Any]:
        """Ask a local model as it is; streams `delta`. `reason` is stop or length; ends when the caller leaves."""
        route = self._find_route(model)
        system = tuple(Part("system", one.content) for one in messages if one.role == "system")
        told = tuple(Message(one.role, one.content) for one in messages if one.role != "system")
        if not told or told[-1].role != "user":
            raise BadInput("the last message is not a user's", hint="end with a message of role user")
        if len(messages) > MAX_MESSAGES or sum(len(one.content) for one in messages) > MAX_CHARS:
            raise BadInput(f"the conversation is over {MAX_MESSAGES} messages or {MAX_CHARS} characters", hint="send less of it")
        if not 0 <= temperature <= 2:
            raise BadInput(f"temperature: {temperature:g} is not between 0 and 2")
        settings = {"temperature": temperature, "max_tokens": max_tokens, "stop": tuple(stop[:8]), "correlation": call.correlation}
        ask = Ask(system, told, slot="lent", person=caller_name(call), repeat_penalty=PENALTY, **settings)  # type: ignore[arg-type]
        said: list[str] = []
        finish: Finish | None = None
        for piece in self._models.generate(route, ask, call.cancel):
            if isinstance(piece, Finish):
                finish = piece
            elif not piece.is_reasoning:
                said.append(piece.text)
                call.notify("delta", {"text": piece.text})
        return {
            "text": "".join(said),
            "model": finish.model if finish else route.model,
            "reason": finish.reason if finish and finish.reason in ("length", "filtered") else "stop",
            "prompt_tokens": finish.prompt_tokens if finish else 0,
            "output_tokens": finish.output_tokens if finish else 0,
        }

    @method("model.embed", access="own", is_long=True)
    def embed(self, texts: Annotated[list[str], "up to 256 of them"]) -> dict[str, Any]:
        """A unit vector for each text, by the local embedding model: `vectors` in the order of the texts."""
        if len(texts) > MAX_TEXTS or sum(map(len, texts)) > MAX_CHARS:
            raise BadInput(f"these are over {MAX_TEXTS} texts or {MAX_CHARS} characters", hint="send them in several calls")
        return {"vectors": [list(vector) for vector in self._models.embed(texts).vectors]}

    def _find_route(self, model: str) -> Route:
        name = model or LOCAL
        if name != LOCAL and name not in self._list_names():
            raise NotFound(f"no local model {name}", hint=f"one of {', '.join([LOCAL, *self._list_names()])}")
        route = self._models.plan(name if name == LOCAL else f"{LOCAL}/{name}")[0]
        if route.is_remote:
            raise Refused(f"{name} is a remote model, and only local ones are lent")
        return route
