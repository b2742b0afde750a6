"""Calendars and contacts of an account (CalDAV, CardDAV) and calendars at an address (ICS), mirrored as entries.

No channel of messages: it is one of these files because it is switched on, watched and tested as they are. Each event, task and
contact of the account is an entry with the bytes that its server has; a subscription is one. What waits (`knowledge.calendar`)
is sent first: a new event to the address that its UID gives, and only if nothing is there, so that one that arrived before a crash
is no second one; a change only if the server still has what was changed. A server's answers are untrusted: their size and number
are limited, addresses of other servers are left out, invitations and subscriptions are marked. Reads tags of changes, so that an
unchanged calendar costs one request. Not promised: scheduling, free and busy times, an address that moves.
"""

import base64
import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any
from urllib.parse import quote, unquote, urljoin
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from msgspec import Struct

from appliance.channels.contract import Connection, Running
from appliance.clock import CancelToken, monotonic_s
from appliance.errors import BadInput, ConfigError, Conflict, NotFound, OwlError, Refused, TooLarge, Unavailable
from appliance.ingest import card_text
from appliance.knowledge.calendar import ENDING, SCHEME, STATE, Calendars
from appliance.knowledge.contents import MAX_BODY_BYTES
from appliance.knowledge.entries import Draft, Entries
from appliance.knowledge.entry_marks import AUTHOR, ORIGIN
from appliance.records import Cancel, Outbound
from appliance.runtime.host_lookup import Deadline
from appliance.runtime.http_client import HttpSession
from appliance.text import icalendar, safe_xml, urls
from appliance.text.references import slug

LOG = logging.getLogger(__name__)
WRITER = "calendar"
CONTACTS = "contacts://"
DAV, CAL, CARD, CS = "DAV:", "urn:ietf:params:xml:ns:caldav", "urn:ietf:params:xml:ns:carddav", "http://calendarserver.org/ns/"
SPACES = f'xmlns:d="{DAV}" xmlns:c="{CAL}" xmlns:a="{CARD}" xmlns:s="{CS}"'
CALL_S = 60.0
MAX_ANSWER = 32 * 1024 * 1024
MAX_OBJECT, MAX_OBJECTS, MAX_COLLECTIONS = 256 * 1024, 10_000, 100
AT_ONCE = 50  # objects of one request
MAX_REDIRECTS = 3
LATER = (408, 423, 425, 429)  # answers after which the same request may succeed
Fetch = Callable[[str, Cancel], bytes]


class Collection(Struct, frozen=True):
    """A calendar or an address book of the account."""

    url: str
    name: str
    kind: str  # "calendar" or "contacts"
    tag: str = ""
    components: tuple[str, ...] = ()


class RemoteObject(Struct, frozen=True):
    """An event, a task or a contact as the server has it."""

    url: str
    etag: str
    text: str


class DavClient:
    """Asks one server, as one user, and no other server."""

    def __init__(self, url: str, user: str, password: Callable[[], str]) -> None:
        self.home = urls.parse(url)
        self._user = user
        self._password = password
        self._http = HttpSession(kept=1)

    def close(self) -> None:
        """Close the connection that rests."""
        self._http.close()

    def properties(self, url: str, names: str, depth: int, cancel: Cancel) -> list[tuple[str, ElementTree.Element]]:
        """The properties of an address and, with depth 1, of what is in it: each address with the element that holds them."""
        body = f'<?xml version="1.0"?><d:propfind {SPACES}><d:prop>{names}</d:prop></d:propfind>'
        return self._multistatus(url, "PROPFIND", body, depth, cancel)

    def objects(self, collection: Collection, addresses: Sequence[str], cancel: Cancel) -> Iterator[RemoteObject]:
        """These objects of a collection."""
        space, what = ("c", "calendar") if collection.kind == "calendar" else ("a", "address")
        root = f"{space}:{'calendar' if what == 'calendar' else 'addressbook'}-multiget"
        hrefs = "".join(f"<d:href>{escape(urls.parse(one).path)}</d:href>" for one in addresses)
        data = f"<d:prop><d:getetag/><{space}:{what}-data/></d:prop>"
        body = f'<?xml version="1.0"?><{root} {SPACES}>{data}{hrefs}</{root}>'
        for url, found in self._multistatus(collection.url, "REPORT", body, 1, cancel):
            text = found.findtext(f".//{{{CAL if space == 'c' else CARD}}}{what}-data") or ""
            if text and len(text) <= MAX_OBJECT:
                yield RemoteObject(url, found.findtext(f".//{{{DAV}}}getetag") or "", text)

    def put(self, url: str, text: str, condition: tuple[str, str], cancel: Cancel) -> tuple[int, str]:
        """Store an object under a condition; the status of the answer and the tag of what is there now."""
        headers = {"Content-Type": "text/calendar; charset=utf-8", condition[0]: condition[1]}
        status, tags, _ = self._ask(url, "PUT", headers, text.encode(), cancel)
        return status, tags.get("etag", "")

    def delete(self, url: str, etag: str, cancel: Cancel) -> int:
        """Delete an object, if it is still the one of this tag; the status of the answer."""
        return self._ask(url, "DELETE", {"If-Match": etag} if etag else {}, None, cancel)[0]

    def _multistatus(self, url: str, method: str, body: str, depth: int, cancel: Cancel) -> list[tuple[str, ElementTree.Element]]:
        headers = {"Content-Type": "application/xml; charset=utf-8", "Depth": str(depth)}
        for _ in range(MAX_REDIRECTS):
            status, given, data = self._ask(url, method, headers, body.encode(), cancel)
            if status not in (301, 302, 307, 308):
                break
            url = self.resolve(url, given.get("location", ""))
        if status == 404:
            raise NotFound(f"{self.home.authority} has nothing at {urls.parse(url).path}", hint="is it the address of CalDAV?")
        if status != 207:
            raise Unavailable(f"{self.home.authority} answers {status} to {method} {urls.parse(url).path}")
        tree = safe_xml.parse(data, self.home.authority)
        found = []
        for response in tree.findall(f"{{{DAV}}}response"):
            try:
                found.append((self.resolve(url, response.findtext(f"{{{DAV}}}href") or ""), response))
            except OwlError as error:
                LOG.warning("left out: %s", error)
        return found

    def resolve(self, base: str, href: str) -> str:
        """An address that the server names; Refused for one of another server, which would be sent the password."""
        target = urls.parse(urljoin(base, href.strip()))
        if target.origin != self.home.origin:
            raise Refused(f"{self.home.authority} names an address of another server: {target.authority}")
        return target.url

    def _ask(
        self, url: str, method: str, headers: dict[str, str], body: bytes | None, cancel: Cancel
    ) -> tuple[int, dict[str, str], bytes]:
        target = urls.parse(url)
        secret = base64.b64encode(f"{self._user}:{self._password()}".encode()).decode()
        headers = {**headers, "Authorization": f"Basic {secret}", "Accept-Encoding": "gzip"}
        by = Deadline(monotonic_s() + CALL_S, f"asking {target.authority}", cancel)
        with self._http.ask(target, headers, body, by=by, method=method) as answer:
            data, is_cut = answer.body(MAX_ANSWER)
            status, given = answer.status_code, {name.lower(): value for name, value in answer.headers.items()}
        if status in (401, 403) and method != "PUT":
            hint = "look at channels.calendar.user and password"
            raise Refused(f"{target.authority} answers {status}: it does not let {self._user or 'nobody'} in", hint=hint)
        if status >= 500 or status in LATER:
            raise Unavailable(f"{target.authority} answers {status}")
        if is_cut:
            raise TooLarge(f"{target.authority} sends more than {MAX_ANSWER} bytes at once")
        return status, given, data


class CalendarAccountSync(Connection):
    """Brings entries in line with the account and the subscriptions, and sends what waits."""

    is_live = False
    checks_senders = True

    def __init__(
        self, client: DavClient | None, table: dict[str, Any], entries: Entries, calendars: Calendars, fetch_file: Fetch
    ) -> None:
        self._client = client
        self._calendar = str(table["calendar"])
        self._subscriptions: dict[str, str] = table["subscriptions"]
        self._audience = f"user:{table['person']}" if table["person"] else ""
        self._every_s = 60.0 * table["every_min"]
        self._secret: Callable[[str], str] = table["secret"]
        self._entries = entries
        self._calendars = calendars
        self._fetch = fetch_file
        self._collections: list[Collection] = []
        self._tags: dict[str, str] = {}
        self._wakened = threading.Event()

    def receive(self, running: Running) -> None:
        """Synchronize at once, when something waits, and at intervals."""
        forget = running.stop.then(self._calendars.waiting.set)
        try:
            while not running.stop.is_set():
                self._calendars.waiting.clear()
                self.synchronize(running.stop)
                running.connected()
                self._calendars.waiting.wait(self._every_s)
        finally:
            forget()

    def deliver(self, message: Outbound) -> None:
        """Nobody is told anything here."""
        raise Refused("a calendar takes no messages", hint="choose another channel")

    def check(self) -> list[str]:
        """Find the calendars, and fetch the subscriptions."""
        cancel = CancelToken()
        found = self._discover(cancel) if self._client is not None else []
        tried = [f"{one.kind}: {one.name}" for one in found]
        for name, address in self._subscriptions.items():
            count = len(icalendar.events(self._download(address, cancel), self._calendars.zone()))
            tried.append(f"subscription {name}: {count} events")
        return tried or ["there is nothing to try: set channels.calendar.url or subscriptions"]

    def warnings(self) -> list[str]:
        """A password that others can read on the way."""
        home = self._client.home if self._client is not None else None
        is_open = home is not None and home.scheme == "http" and home.host not in ("localhost", "127.0.0.1", "[::1]")
        return ["channels.calendar.url is not encrypted: others can read the password"] if is_open else []

    def close(self) -> None:
        """Close what rests."""
        if self._client is not None:
            self._client.close()

    # -- synchronizing --------------------------------------------------------------------------------

    def synchronize(self, cancel: Cancel) -> None:
        """Send what waits, then take over what changed; errors are those of the first server that failed."""
        problems: list[OwlError] = []
        if self._client is not None:
            try:
                self._collections = self._collections or self._discover(cancel)
                self._send_waiting(cancel)
                for collection in self._collections:
                    self._take_over(collection, cancel)
                self._forget_collections()
            except OwlError as error:
                self._collections = []
                problems.append(error)
        for name, address in self._subscriptions.items():
            try:
                self._take_subscription(name, self._download(address, cancel))
            except OwlError as error:
                problems.append(error)
        if problems:
            raise problems[0]

    def _discover(self, cancel: Cancel) -> list[Collection]:
        """The calendars and address books of the account, or the one that the address names itself."""
        assert self._client is not None
        names = "<d:current-user-principal/><d:resourcetype/><d:displayname/><s:getctag/><c:supported-calendar-component-set/>"
        asked = self._client.properties(self._client.home.url, names, 0, cancel)
        if found := _collections(asked):
            return found
        principal = next((self._address(url, one, f"{{{DAV}}}current-user-principal") for url, one in asked), "")
        homes: list[str] = []
        wanted = "<c:calendar-home-set/><a:addressbook-home-set/>"
        for url, one in self._client.properties(principal or self._client.home.url, wanted, 0, cancel):
            homes += [self._address(url, one, name) for name in (f"{{{CAL}}}calendar-home-set", f"{{{CARD}}}addressbook-home-set")]
        for home in dict.fromkeys(filter(None, homes)):
            found += _collections(self._client.properties(home, names, 1, cancel))
        unique = {one.url: one for one in found}
        if not unique:
            raise NotFound(f"{self._client.home.url} has no calendars and no contacts", hint="is it the address of CalDAV?")
        return list(unique.values())[:MAX_COLLECTIONS]

    def _address(self, base: str, element: ElementTree.Element, name: str) -> str:
        """The address that a property holds, "" for none."""
        assert self._client is not None
        href = element.findtext(f".//{name}/{{{DAV}}}href")
        return self._client.resolve(base, href) if href else ""

    def _take_over(self, collection: Collection, cancel: Cancel) -> None:
        """Bring the entries of one collection in line with what the server has."""
        assert self._client is not None
        tag = self._read_tag(collection, cancel)
        if tag and self._tags.get(collection.url) == tag:
            return
        listed = self._client.properties(collection.url, "<d:getetag/><d:resourcetype/>", 1, cancel)
        etags = {url: one.findtext(f".//{{{DAV}}}getetag") or "" for url, one in listed if not _is_collection(one)}
        etags = dict(list(etags.items())[:MAX_OBJECTS])
        known = {given["url"]: (path, given) for path, given in self._known(collection).items() if given.get("url")}
        waiting = {url for url, (_, given) in known.items() if given.get(STATE)}
        wanted = [url for url, etag in etags.items() if url not in waiting and etag != known.get(url, ("", {}))[1].get("etag")]
        for start in range(0, len(wanted), AT_ONCE):
            objects = self._client.objects(collection, wanted[start : start + AT_ONCE], cancel)
            drafts = [self._draft(collection, one, known.get(one.url, ("", {}))[0]) for one in objects]
            self._entries.mirror(drafts, writer=WRITER)
        gone = [path for url, (path, _) in known.items() if url not in etags and url not in waiting]
        if gone:
            self._entries.mirror([], gone, writer=WRITER)
        self._tags[collection.url] = tag

    def _read_tag(self, collection: Collection, cancel: Cancel) -> str:
        assert self._client is not None
        found = self._client.properties(collection.url, "<s:getctag/>", 0, cancel)
        return next((one.findtext(f".//{{{CS}}}getctag") or "" for _, one in found), "")

    def _known(self, collection: Collection) -> dict[str, dict[str, Any]]:
        """The attributes of the entries of one collection, by path; of new ones that are for it as well."""
        scheme = SCHEME if collection.kind == "calendar" else CONTACTS
        found = self._entries.attributes(scheme)
        return {path: given for path, given in found.items() if given.get("collection") == collection.url}

    def _forget_collections(self) -> None:
        """Remove what was mirrored of collections that are no longer there; what waits stays."""
        here = {one.url for one in self._collections}
        gone = []
        for scheme in (SCHEME, CONTACTS):
            for path, given in self._entries.attributes(scheme).items():
                if given.get("collection") and given["collection"] not in here and not given.get(STATE):
                    gone.append(path)
        if gone:
            self._entries.mirror([], gone, writer=WRITER)

    def _draft(self, collection: Collection, one: RemoteObject, path: str) -> Draft:
        text, title = card_text.read(one.text), _title(one.text)
        scheme, ending = (SCHEME, ENDING) if collection.kind == "calendar" else (CONTACTS, ".vcf")
        name = f"{slug(title)[:40] or 'entry'}-{hashlib.sha256(one.url.encode()).hexdigest()[:8]}"
        path = path or f"{scheme}{slug(collection.name)[:40] or 'calendar'}/{name}{ending}"
        attributes: dict[str, Any] = {"url": one.url, "etag": one.etag, "collection": collection.url}
        if (organizer := card_text.organizer(one.text)) is not None and collection.kind == "calendar":
            attributes |= {ORIGIN: "mail", AUTHOR: f"from {organizer}" if organizer else ""}
        return Draft(path, title, _fitting(text), attributes, self._audience, one.text, True)

    def _download(self, address: str, cancel: Cancel) -> str:
        url = self._secret(address.removeprefix("secret:")) if address.startswith("secret:") else address
        url = urls.parse(url.replace("webcal://", "https://", 1)).url
        try:
            data = self._fetch(url, cancel)
        except OwlError as error:  # whoever knows the address may read the calendar
            text = error.message.replace(url, urls.parse(url).authority)
            raise Unavailable(f"a subscription: {text}", hint="look at channels.calendar.subscriptions") from None
        if b"BEGIN:VCALENDAR" not in data[:4096].upper():
            raise BadInput(f"what {urls.parse(url).authority} sends is no calendar", hint="is it the address of an .ics file?")
        return data.decode("utf-8", "replace")

    def _take_subscription(self, name: str, text: str) -> None:
        path = f"{SCHEME}{slug(name) or 'subscription'}{ENDING}"
        attributes = {"subscription": name, ORIGIN: "web", AUTHOR: f"calendar {name}"}
        draft = Draft(path, name[:200], _fitting(card_text.read(text)), attributes, self._audience, text, True)
        self._entries.mirror([draft], writer=WRITER)

    # -- sending --------------------------------------------------------------------------------------

    def _send_waiting(self, cancel: Cancel) -> None:
        """Send what waits; what a server refuses for good is named and taken back."""
        for path, given in self._entries.attributes(SCHEME).items():
            if state := given.get(STATE):
                self._send(path, str(state), given, cancel)

    def _send(self, path: str, state: str, given: dict[str, Any], cancel: Cancel) -> None:
        assert self._client is not None
        entry = self._entries.get(path)
        text = self._entries.blob(entry).decode("utf-8", "replace")
        collection = next((one for one in self._collections if one.url == given.get("collection")), None) or self._target()
        url = str(given.get("url") or urljoin(collection.url, quote(path.rpartition("/")[2])))
        etag = str(given.get("etag") or "")
        if state == "gone":
            status = self._client.delete(url, etag, cancel) if given.get("url") else 404
            if status < 300 or status in (404, 410):
                self._entries.mirror([], [path], writer=WRITER)
                return
        elif state == "new":
            status, etag = self._client.put(url, text, ("If-None-Match", "*"), cancel)
            if status == 412:  # it arrived before, for the address is that of its UID; it may have been changed since
                there = next(self._client.objects(collection, [url], cancel), RemoteObject(url, "", ""))
                status, etag = 200, there.etag
                if _said(there.text, self._calendars) != _said(text, self._calendars):
                    status, etag = self._client.put(url, text, ("If-Match", etag), cancel)
        else:
            status, etag = self._client.put(url, text, ("If-Match", etag), cancel)
        if status >= 300:
            why = "it was changed there meanwhile" if status == 412 else f"the server answers {status}"
            LOG.error("the calendar does not take %r (%s): %s", entry.title, state, why)
            problem = f"{entry.title!r} was not {'removed' if state == 'gone' else 'stored'}: {why}"
            self._take_back(path, state, given)
            self._tags.clear()
            raise Conflict(problem, hint="say it again, or change it in a calendar program")
        now = self._entries.find(path)
        if now is None:
            return
        attributes = {**now.attributes, "url": url, "etag": etag, "collection": collection.url}
        if (now.hash, now.updated_ms) == (entry.hash, entry.updated_ms):
            del attributes[STATE]
        elif attributes.get(STATE) == "new":  # it was changed while it was sent
            attributes[STATE] = "changed"
        text = self._entries.blob(now).decode("utf-8", "replace")
        self._entries.mirror([Draft(path, now.title, now.body, attributes, "", text, True)], writer=WRITER)

    def _take_back(self, path: str, state: str, given: dict[str, Any]) -> None:
        """Have an entry be as the server says again: it is read anew, or gone where the server never had it."""
        if state == "new":
            self._entries.mirror([], [path], writer=WRITER)
            return
        entry = self._entries.get(path)
        attributes = {**{name: value for name, value in given.items() if name != STATE}, "etag": ""}
        text = self._entries.blob(entry).decode("utf-8", "replace")
        self._entries.mirror([Draft(path, entry.title, entry.body, attributes, "", text, True)], writer=WRITER)

    def _target(self) -> Collection:
        """The calendar that new events go to."""
        calendars = [one for one in self._collections if one.kind == "calendar" and "VEVENT" in (one.components or ("VEVENT",))]
        named = [one for one in calendars if not self._calendar or self._calendar.casefold() == one.name.casefold()]
        if not named:
            names = ", ".join(one.name for one in calendars) or "none"
            raise ConfigError(
                f"the account has no calendar {self._calendar!r}", key="channels.calendar.calendar", hint=f"there are: {names}"
            )
        return named[0]


def _collections(found: Sequence[tuple[str, ElementTree.Element]]) -> list[Collection]:
    """The calendars and address books among what was listed."""
    made = []
    for url, one in found:
        is_calendar = one.find(f".//{{{DAV}}}resourcetype/{{{CAL}}}calendar") is not None
        if is_calendar or one.find(f".//{{{DAV}}}resourcetype/{{{CARD}}}addressbook") is not None:
            name = " ".join((one.findtext(f".//{{{DAV}}}displayname") or "").split()) or unquote(url.rstrip("/").rpartition("/")[2])
            name = "".join(letter for letter in name if letter.isprintable())[:80]
            components = tuple(comp.get("name", "").upper() for comp in one.iter(f"{{{CAL}}}comp"))
            address = url if url.endswith("/") else f"{url}/"
            made.append(Collection(address, name, "calendar" if is_calendar else "contacts", components=components))
    return made


def _is_collection(element: ElementTree.Element) -> bool:
    return element.find(f".//{{{DAV}}}resourcetype/{{{DAV}}}collection") is not None


def _said(text: str, calendars: Calendars) -> list[tuple[Any, ...]]:
    """What an object says of its events, whatever its lines."""
    return [(one.title, one.start, one.end, one.place) for one in icalendar.events(text, calendars.zone())]


def _title(text: str) -> str:
    """What the first event or contact of an object is called."""
    return card_text.read(text).partition("\n")[0].removeprefix("## ").strip()[:200] or "-"


def _fitting(text: str) -> str:
    """A text within the limits of an entry, cut at a line; its bytes have all of it."""
    data = text.replace("\0", "").encode("utf-8", "replace")
    if len(data) <= MAX_BODY_BYTES:
        return data.decode()
    return data[:MAX_BODY_BYTES].decode("utf-8", "ignore").rpartition("\n")[0] + "\n"


def connect(
    url: Annotated[str, "the account's address of CalDAV, such as https://cloud.example.org/remote.php/dav"] = "",
    user: Annotated[str, "its user"] = "",
    password: Annotated[str, "its password, such as secret:channel/calendar"] = "",
    calendar: Annotated[str, "the calendar that new events go to; empty for the first"] = "",
    subscriptions: Annotated[dict[str, str], "calendars at an address: school = 'https://…/school.ics', or 'secret:…'"] = {},  # noqa: B006
    person: Annotated[str, "the person whose they are; empty for everybody"] = "",
    every_min: Annotated[int, "minutes between two looks"] = 15,
    *,
    secret: Callable[[str], str],
    entries: Entries,
    calendars: Calendars,
    fetch_file: Fetch,
) -> CalendarAccountSync:
    """The calendars of this table."""
    if not 1 <= every_min <= 1440:
        raise BadInput(f"every_min: {every_min} is not between 1 and 1440", hint="15 is usual")
    client = None
    if url:
        hidden = password.removeprefix("secret:") if password.startswith("secret:") else ""
        client = DavClient(url, user, lambda: secret(hidden) if hidden else password)
    table = {"calendar": calendar, "subscriptions": dict(subscriptions), "person": person, "every_min": every_min, "secret": secret}
    return CalendarAccountSync(client, table, entries, calendars, fetch_file)
