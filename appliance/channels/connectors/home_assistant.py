"""Home Assistant: sentences about devices go to its conversation API, with a long-lived token; its answers are told as they come.

What its devices, rooms and people are called is fetched hourly, so that a sentence which names none of them never leaves the box. A
request is sent once: whether one arrived whose answer was lost, the error leaves open. Answers are untrusted text: one line of
limited length, marked. https://developers.home-assistant.io/docs/intent_conversation_api describes the form.
"""

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from msgspec import Struct

from appliance.channels.lookups import FetchConfigured, Lookup, read_json
from appliance.clock import CancelToken
from appliance.errors import ConfigError, DeadlineExceeded, HttpError, Lost, OwlError, Refused, TooLarge, Unavailable
from appliance.knowledge.lookups import HomeAnswer
from appliance.records import Cancel
from appliance.text import urls
from appliance.text.plain_line import plain_line

MAX_ANSWER, MAX_STATES = 256 * 1024, 8 * 1024 * 1024
MAX_NAMES, MAX_NAME, MAX_SPEECH = 5000, 80, 1000
SECRET = "secret:"
CODE = re.compile("[a-z_]{1,40}")
AREAS = json.dumps({"template": "{{ areas() | map('area_name') | list | tojson }}"}).encode()
LOCAL = ("localhost", "127.0.0.1", "[::1]")


class StateAttributes(Struct, frozen=True):
    friendly_name: Any = None


class HomeState(Struct, frozen=True):
    attributes: StateAttributes


class PlainSpeech(Struct, frozen=True):
    speech: str = ""


class SpokenAnswer(Struct, frozen=True):
    plain: PlainSpeech = PlainSpeech()


class AnswerData(Struct, frozen=True):
    code: str = ""


class HomeResponse(Struct, frozen=True):
    response_type: Literal["action_done", "query_answer", "error"]
    speech: SpokenAnswer = SpokenAnswer()
    data: AnswerData = AnswerData()


class ConversationAnswer(Struct, frozen=True):
    response: HomeResponse


class HomeAssistant(Lookup):
    """One of them, as the owner of the token."""

    every_s = 3600.0

    def __init__(self, url: str, token: Callable[[], str], people: tuple[str, ...], fetch: FetchConfigured) -> None:
        super().__init__(fetch)
        self._url = url.rstrip("/")
        self._token = token
        self._names: tuple[str, ...] = ()
        self.people = people

    def refresh(self, cancel: Cancel) -> None:
        """Learn the names."""
        self._names = self._ask_names(cancel)

    def names(self) -> tuple[str, ...]:
        """What its devices, rooms and people are called, as far as it has said so; it is asked where it never has."""
        try:
            return self._names or self.keep("names", self.every_s, lambda: self._ask_names(CancelToken()))[0]
        except OwlError:
            return ()

    def say(self, text: str, language: str, cancel: Cancel) -> HomeAnswer:
        """Send a sentence, once; Lost where it may have arrived and nothing came back."""
        body = json.dumps({"text": text, "language": language}).encode()
        url = f"{self._address()}/api/conversation/process"
        try:
            data = self.ask(url, cancel, MAX_ANSWER, headers=self._headers(), body=body)
        except (HttpError, DeadlineExceeded) as error:
            if isinstance(error, HttpError) and not error.may_have_arrived:
                raise
            hint = "look whether it was, before you say it again"
            raise Lost("Home Assistant did not answer: nobody knows whether it was done", hint=hint) from None
        found = read_json(data, ConversationAnswer, "Home Assistant").response
        speech = plain_line(found.speech.plain.speech, MAX_SPEECH)
        return HomeAnswer(speech, found.response_type == "error", found.data.code if CODE.fullmatch(found.data.code) else "")

    def check(self) -> list[str]:
        """Learn the names."""
        return [f"{len(self._ask_names(CancelToken()))} names of devices, rooms and people"]

    def warnings(self) -> list[str]:
        """A token that others can read on the way."""
        is_open = bool(self._url) and (home := urls.parse(self._url)).scheme == "http" and home.host not in LOCAL
        return ["channels.home_assistant.url is not encrypted: others in your network can read the token"] if is_open else []

    def _ask_names(self, cancel: Cancel) -> tuple[str, ...]:
        data = self.ask(f"{self._address()}/api/states", cancel, MAX_STATES, headers=self._headers())
        given = [one.attributes.friendly_name for one in read_json(data, list[HomeState], "Home Assistant")]
        found = [name for name in given if isinstance(name, str)]
        try:  # areas are in no other call; a user who is no administrator may not ask for them
            url = f"{self._address()}/api/template"
            found += read_json(self.ask(url, cancel, MAX_ANSWER, headers=self._headers(), body=AREAS), list[str], "Home Assistant")
        except (Refused, Unavailable, TooLarge):
            pass
        return tuple(dict.fromkeys(filter(None, (plain_line(one, MAX_NAME) for one in found[:MAX_NAMES]))))

    def _address(self) -> str:
        if not self._url:
            key, hint = "channels.home_assistant.url", "such as http://homeassistant.local:8123"
            raise ConfigError(f"{key} is not set", key=key, hint=f"owlbox config set {key} ADDRESS, {hint}")
        return self._url

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"}


def connect(
    url: Annotated[str, "its address, such as http://homeassistant.local:8123"] = "",
    token: Annotated[str, "a long-lived access token, such as secret:channel/home-assistant"] = "",
    people: Annotated[list[str], "the people who may speak to it; empty for everybody whom this box knows"] = [],  # noqa: B006
    *,
    secret: Callable[[str], str],
    fetch_configured: FetchConfigured,
) -> HomeAssistant:
    """The Home Assistant of this table."""
    hidden = token.removeprefix(SECRET) if token.startswith(SECRET) else ""
    return HomeAssistant(url, lambda: secret(hidden) if hidden else token, tuple(people), fetch_configured)
