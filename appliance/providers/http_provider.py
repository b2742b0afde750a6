"""A model at a provider, asked over HTTP: what all formats share. Each format is a class below this one, in `formats`.

Waits for nothing but the network: it holds no CPU, so it never rests for others, and several threads may ask at once.
What a provider does not take is told apart from what is wrong: a parameter that it names as unknown is left out and
the question is put again, before anything was answered. Sizes are estimates; nobody is asked for them.
"""

import json
import re
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from appliance.clock import monotonic_s
from appliance.errors import Cancelled, ContextTooLong, OwlError, ProviderError
from appliance.providers import conversation
from appliance.providers.conversation import RequestTalk, ToolNames
from appliance.providers.error_mapping import clean, window_in
from appliance.providers.remote_settings import WINDOW, ListedModel, Remote
from appliance.providers.response import AnswerDraft, parsed
from appliance.providers.sse import SseEvent, SseEvents
from appliance.records import Ask, Cancel, Finish, Measure, Pause, Piece, Route
from appliance.runtime.host_lookup import Deadline
from appliance.text import tokens

if TYPE_CHECKING:
    from appliance.providers.http_pool import HttpReply, Lines, ProviderRequest

LISTING_S = 30.0
AFTER_S = 5.0  # how long the usage may come after the end of the answer
SENT_KEYS = 8  # newest keys of a provider whose answers may still come
MARKS = 512  # what is remembered of calls for the next request
# Whose templates open the thoughts for them, so that a server which takes none apart sends their end alone.
THINKERS = re.compile(
    r"(?<![a-z])(?:r1|z1|q[wv]q|qwen3\.[5-9]|minimax-m\d|think(?:ing|er)?|reason(?:ing|er)?|nemotron)(?![a-z])", re.I
)
JSON_TYPES = ("application/json", "text/json")
REJECTED = re.compile(
    r"unsupported|not supported|unrecognized|unknown|unexpected|not permitted|not allowed|does not support|deprecated|no longer"
    r"|instead|only the default|cannot be used",
    re.I,
)


class Hosted(ABC):
    """A model at a provider. Nothing is loaded; closing it closes what rests of its connections."""

    is_loaded = True
    memory_bytes = 0
    optional: Mapping[str, str] = {}  # parameters that may be left out, and the word for each in a complaint about it

    def __init__(self, remote: Remote) -> None:
        self._sent_keys: deque[str] = deque(maxlen=SENT_KEYS)  # what no answer may show
        self.remote = replace(remote, key=self._remember_key(remote.key))
        self.name = remote.provider
        self.model = remote.model
        self._guard = threading.Lock()
        self._lines: Lines | None = None
        self._window = self._most = 0
        self._may_be_thinking = self._read_thinking()
        self._marks: OrderedDict[str, Any] = OrderedDict()
        self.refused: frozenset[str] = frozenset()  # parameters that this provider was found not to take

    def _remember_key(self, key: Callable[[], str]) -> Callable[[], str]:
        """The same key; what was handed out for a request is known when its answer comes, without asking again."""

        def ask() -> str:
            if (given := key()) not in self._sent_keys:
                self._sent_keys.append(given)
            return given

        return ask

    # -- what a format knows -----------------------------------------------------------------------------

    @abstractmethod
    def _build_headers(self) -> dict[str, str]:
        """The headers of a request, key included."""

    @abstractmethod
    def _answer_url(self) -> str:
        """Where an answer is asked for."""

    @abstractmethod
    def _build_body(self, ask: Ask, talk: RequestTalk, names: ToolNames) -> dict[str, Any]:
        """The request."""

    @abstractmethod
    def _read_event(self, draft: AnswerDraft, sent: SseEvent) -> None:
        """Tell the draft what an event says."""

    @abstractmethod
    def _read_whole(self, draft: AnswerDraft, body: dict[str, Any]) -> None:
        """Tell the draft what an answer says that came in one piece."""

    @abstractmethod
    def listing(self, cancel: Cancel | None = None) -> tuple[ListedModel, ...]:
        """The models that the provider offers (A-129)."""

    def _build_talk(self, ask: Ask) -> RequestTalk:
        return conversation.read(ask, has_images=self.remote.has_images)

    # -- a provider to the pool ----------------------------------------------------------------------------

    @property
    def window(self) -> int:
        """Tokens that it reads: what is configured, else what the provider says (R-200), else a guess."""
        return self.remote.window or self._window or WINDOW

    @property
    def max_tokens(self) -> int:
        """The longest answer that may be asked for (A-115)."""
        return min(self.remote.max_tokens, self._most or self.remote.max_tokens)

    def load(self, cancel: Cancel) -> None:
        """Nothing is loaded; a window that nobody configured is asked for."""
        if not self.remote.window and not self._window:
            self.discover(cancel)

    def close(self) -> None:
        """Close the connections that rest."""
        with self._guard:
            lines, self._lines = self._lines, None
        if lines is not None:
            lines.close()

    def count(self, text: str) -> int:
        """About how many tokens, rather too many."""
        return tokens.estimate(text)

    def measure(self, route: Route, ask: Ask) -> Measure:
        """About how many tokens per named part, of the tools' schemas, and of the messages."""
        parts: dict[str, int] = {}
        texts = [(part.name, part.text) for part in ask.system]
        texts += [("tools", json.dumps([t.name, t.description, t.schema], ensure_ascii=False)) for t in self._tools_beside(ask)]
        texts += [("messages", m.content + "".join(json.dumps(c.arguments) for c in m.tool_calls)) for m in ask.messages]
        for name, text in texts:
            parts[name] = parts.get(name, 0) + self.count(text)
        return Measure(self.model, parts, sum(parts.values()))

    def generate(self, route: Route, ask: Ask, cancel: Cancel, pause: Pause | None = None) -> Iterator[Piece | Finish]:
        """Pieces as they come, then one Finish. Cancelled and DeadlineExceeded end it at once, whatever the network does."""
        if ask.tools and ask.dialect == "native" and not self.remote.has_tools:
            raise ProviderError(
                f"{self.name}/{self.model} cannot call tools, and this is work for a model that can",
                hint="choose another model for it; for plain answers this one will do",
                outcome="model_not_supported",
            )
        names = ToolNames(ask)
        draft = AnswerDraft(self.remote, ask, names, may_be_thinking=self._may_be_thinking)
        with self._ask_provider(ask, names, cancel) as reply:
            yield from self._read_pieces(reply, draft)
            finish = draft.finish(lambda: self.measure(route, ask).total, tokens.of_chars, self.remember)
            self._learn_thinking(draft.has_thought_unmarked)
            yield from draft.take()
            yield finish
            if not draft.is_stopped:  # otherwise it is still talking
                reply.drain()

    def discover(self, cancel: Cancel | None = None) -> int:
        """Ask the provider how much the model reads and writes; the window from now on."""
        models = self.listing(cancel)
        found = next((one for one in models if one.model == self.model), models[0] if len(models) == 1 else None)
        if found is not None:
            self._window, self._most = found.window, found.max_tokens
        return self.window

    # -- parts -------------------------------------------------------------------------------------------

    def _tools_beside(self, ask: Ask) -> Any:
        """The tools that are described beside the text: none where the text does it."""
        return ask.tools if ask.dialect == "native" else ()

    def remember(self, id: str, mark: Any) -> None:
        """Keep what the provider wants to see again with a call, for the calls that were made last."""
        with self._guard:
            self._marks[id] = mark
            while len(self._marks) > MARKS:
                self._marks.popitem(last=False)

    def recalled(self, id: str) -> Any:
        """The stored details of a call, None when they are not or no longer there."""
        with self._guard:
            return self._marks.get(id)

    def _read_thinking(self) -> bool:
        """Whether the model may end thoughts that it never opened: as its last answers told, else as its name says."""
        learnt = self.remote.learnt
        if learnt is not None and learnt.exists():
            return learnt.read_bytes() == b"yes"
        return THINKERS.search(self.model) is not None

    def _learn_thinking(self, found: bool | None) -> None:
        """Take what an answer told, and keep it for the next process."""
        if found is None or found == self._may_be_thinking:
            return
        self._may_be_thinking = found
        if self.remote.learnt is not None:
            with suppress(OSError):  # then it is learnt again
                self.remote.learnt.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.remote.learnt.write_text("yes" if found else "no")

    @contextmanager
    def _ask_provider(self, ask: Ask, names: ToolNames, cancel: Cancel) -> Iterator["HttpReply"]:
        """The answer from its first byte on; a parameter that is refused is left out, and the question put again."""
        talk, deadline = self._build_talk(ask), self._deadline_for(cancel, ask.deadline_s)
        while True:
            request = self._build_request(self._answer_url(), self._build_body(ask, talk, names))
            problem: ProviderError | None = None
            try:
                reply = self._get_lines().open(request, deadline)
            except ContextTooLong as error:
                self._learn_window(error.message)
                problem = error
            except ProviderError as error:
                problem = error
                if self._drop_parameter(error, request.body or {}):
                    continue
            if problem is not None:
                raise problem
            with reply:
                yield reply
            return

    def _read_pieces(self, reply: "HttpReply", draft: AnswerDraft) -> Iterator[Piece]:
        draft.hidden = reply.hidden
        draft.hide(self.remote.secrets(self._sent_keys))
        if reply.media_type in JSON_TYPES:
            self._read_whole(draft, parsed(reply.whole(16_000_000).decode("utf-8", "replace"), self.name, draft.hidden))
            yield from draft.take()
            return
        if reply.media_type.startswith("text/html"):
            said = clean(reply.whole(1_000_000).decode("utf-8", "replace"), draft.hidden)
            raise ProviderError(f"{self.name} ({self.model}) sent {said}", hint="is base_url right?", outcome="invalid_response")
        events, chunks = SseEvents(), reply.chunks()
        while (data := self._next_bytes(chunks, draft)) is not None:
            for sent in events.feed(data):
                self._read_event(draft, sent)
                yield from draft.take()
                if draft.is_over:
                    return
            if draft.reason is not None:
                reply.hasten(AFTER_S)
        for sent in events.close():
            self._read_event(draft, sent)
        yield from draft.take()

    @staticmethod
    def _next_bytes(chunks: Iterator[bytes], draft: AnswerDraft) -> bytes | None:
        """The next bytes, None at the end: also where a server that had said why it ended breaks off behind that."""
        try:
            return next(chunks, None)
        except ProviderError:
            if draft.reason is None:
                raise
            return None

    def _drop_parameter(self, error: ProviderError, body: Mapping[str, Any]) -> bool:
        """True when the complaint names a parameter that can be left out: from now on it is."""
        if error.outcome != "invalid_request" or not REJECTED.search(error.message):
            return False
        sent = json.dumps(body, ensure_ascii=False)
        for name, word in self.optional.items():
            was_sent = name not in self.refused and f'"{name.partition(".")[0]}":' in sent
            if was_sent and re.search(rf"(?<![a-z]){word}(?![a-z])", error.message, re.I):
                self.refused |= {name}
                return True
        return False

    def _learn_window(self, text: str) -> None:
        """Take the window that a complaint names, where nobody set one."""
        found = window_in(text)
        if found and not self.remote.window:
            self._window = found

    def _get_lines(self) -> "Lines":
        from appliance.providers.http_pool import Lines  # requests: a broker without remote models must not pay for it

        with self._guard:
            if self._lines is None:
                self._lines = Lines(self.remote)
            return self._lines

    def _build_request(self, url: str, body: dict[str, Any] | None) -> "ProviderRequest":
        from appliance.providers.http_pool import ProviderRequest

        return ProviderRequest(url, self._build_headers(), body)

    def _deadline_for(self, cancel: Cancel | None, within_s: float) -> Deadline:
        return Deadline(monotonic_s() + within_s, f"asking {self.name} ({self.model})", cancel, self.remote.timeout_s)

    def _get_json(self, url: str, cancel: Cancel | None) -> Any:
        """The JSON of a short GET request."""
        return self._get_lines().read(self._build_request(url, None), self._deadline_for(cancel, LISTING_S))

    def _get_optional(self, url: str, cancel: Cancel | None) -> Any:
        """The JSON of a GET request, None where the provider does not have it."""
        try:
            return self._get_json(url, cancel)
        except Cancelled:
            raise
        except OwlError:
            return None
