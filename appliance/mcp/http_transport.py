"""A server of tools behind an address: the transport by HTTP, and the login that such a server may want (OAuth).

Owns the tokens while the bridge runs, and the way to a person's consent: an address to open, and a page on this machine
or a pasted address that brings the answer back. Where tokens are kept is the core's matter. In the bridge process alone.

Requests go to the address a person wrote down, and else to what the fetcher may reach: a server names further addresses itself,
for its login, and each is judged by the rules of the web. A proxy of the environment is used for the address that was written down
alone, because a proxy looks names up by itself.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from appliance.clock import monotonic_s
from appliance.errors import BadInput, ServerError
from appliance.mcp import repair
from appliance.runtime.host_lookup import Deadline, Resolve, addresses_of, look_up, proxy_of
from appliance.text import urls
from appliance.text.urls import Target
from appliance.web import addresses
from appliance.web.hosts import HostRules

CONSENT_S = 600.0  # for a person to log in
THANKS = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThank you. You can close this page.\n"
LOOK_UP_S = 10.0


class OriginGuard(httpx2.AsyncBaseTransport):
    """A transport that reaches the origins of `own`, as they are, and others by the rules; Refused for the rest."""

    def __init__(self, own: Sequence[str], rules: HostRules, resolve: Resolve = look_up) -> None:
        self._own = {urls.parse(address).origin for address in own if address}
        self._rules = rules
        self._resolve = resolve
        self._inner = httpx2.AsyncHTTPTransport()
        proxy = proxy_of(urls.parse(own[0]))
        self._given = httpx2.AsyncHTTPTransport(proxy=proxy) if proxy else self._inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; redirects come back here as requests of their own."""
        target = urls.parse(str(request.url))
        if target.origin in self._own:
            return await self._given.handle_async_request(request)
        found = await asyncio.to_thread(self._check_addresses, target)
        for address in found[:-1]:
            try:
                return await self._inner.handle_async_request(_pin_request(request, target, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue  # nobody answers there: the next address
        return await self._inner.handle_async_request(_pin_request(request, target, found[-1]))

    async def aclose(self) -> None:
        """Close the connections; closing twice is safe."""
        await self._inner.aclose()
        await self._given.aclose()

    def _check_addresses(self, target: Target) -> list[str]:
        self._rules.check(target)
        found = addresses_of(target, self._resolve, Deadline(monotonic_s() + LOOK_UP_S, target.url))
        addresses.check(self._rules, target, found)
        return found


def _pin_request(request: httpx2.Request, target: Target, address: str) -> httpx2.Request:
    """The same request to one address; its Host line, and the name that a certificate must have, stay."""
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": target.host},
    )


@dataclass
class LoginTokens:
    """What a login brought: kept as plain values, `is_changed` until the core has been told.

    The library keeps neither when a token ends nor who renews it, and would ask the person again after each start; both are
    kept here.
    """

    kept: dict[str, Any] = field(default_factory=dict)
    is_changed: bool = False
    issuer: str = ""
    _context: OAuthContext | None = None

    def join(self, context: OAuthContext) -> None:
        """Tell the library what it does not keep, and learn from it when that changes."""
        self._context = context
        context.token_expiry_time = self.kept.get("ends_s")
        context.oauth_metadata = _parse_stored(OAuthMetadata, self.kept.get("metadata"))
        context.auth_server_url = self.kept.get("issuer")

    def name(self, client_id: str, secret: str, issuer: str = "") -> None:
        """Use a name that was given to us, instead of registering; with who gave it, it is all that a login takes."""
        self.issuer = issuer
        how = "client_secret_basic" if secret else "none"
        self.kept["client"] = {"client_id": client_id, "token_endpoint_auth_method": how, "client_secret": secret or None}

    async def get_tokens(self) -> OAuthToken | None:
        found: OAuthToken | None = _parse_stored(OAuthToken, self.kept.get("tokens"))
        return found

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.kept["tokens"], self.is_changed = tokens.model_dump(mode="json", exclude_none=True), True
        if self._context is not None:
            about = self._context.oauth_metadata
            self.kept["ends_s"] = self._context.token_expiry_time
            self.kept["metadata"] = about.model_dump(mode="json", exclude_none=True) if about is not None else None
            self.kept["issuer"] = self._context.auth_server_url

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        found: OAuthClientInformationFull | None = _parse_stored(OAuthClientInformationFull, self.kept.get("client"))
        return found

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.kept["client"], self.is_changed = client_info.model_dump(mode="json", exclude_none=True), True


def _parse_stored(cls: Any, plain: Any) -> Any:
    try:
        return None if plain is None else cls.model_validate(plain)
    except ValidationError:
        return None  # written by another version: the person logs in again


class Consent:
    """A person's way through the login: told the address by `show`, heard through a page of ours or a pasted address."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self._page: asyncio.Server | None = None
        self.redirect = ""

    async def open(self) -> None:
        """Begin to listen on this machine alone."""
        self._page = await asyncio.start_server(self._handle_redirect, "127.0.0.1", 0)
        self.redirect = f"http://127.0.0.1:{self._page.sockets[0].getsockname()[1]}/callback"

    def close(self) -> None:
        """Listen no longer."""
        if self._page is not None:
            self._page.close()

    def answer(self, address: str) -> None:
        """Take the address to which the login led; BadInput when it is not one of that kind."""
        found = {name: values[0] for name, values in parse_qs(urlsplit(address.strip()).query).items()}
        if "error" in found and not self._answer.done():
            said = f"{found['error']} {found.get('error_description', '')}".strip()
            self._answer.set_exception(ServerError(f"the login was refused: {said}", outcome="auth_error"))
            return
        if "code" not in found:
            raise BadInput("that address holds no code", hint="paste the whole address that the browser shows after the login")
        if not self._answer.done():
            self._answer.set_result(AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss")))

    async def tell(self, address: str) -> None:
        """Show the person where to log in."""
        self._show(address)

    async def wait(self) -> AuthorizationCodeResult:
        """The result of the login."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._answer), CONSENT_S)
        except TimeoutError:
            raise ServerError("nobody logged in", hint="owlbox mcp auth NAME", outcome="auth_error") from None

    async def _handle_redirect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            line = (await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)).decode("latin-1").split(" ")
            if len(line) > 1 and line[1].startswith("/callback?"):
                self.answer(line[1])
                writer.write(THANKS)
            else:
                writer.write(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n")
            await writer.drain()
        writer.close()


@dataclass
class HttpRefusal:
    """The last refusal by HTTP: the library tells of its status only that it was one."""

    status: int = 0

    async def inspect_response(self, response: httpx2.Response) -> None:
        """Look at an answer."""
        self.status = response.status_code if response.status_code >= 400 else 0


class _Mended(httpx2.AsyncByteStream):
    """The body of an answer with a sign in place of each half character: whole, or line by line of an event stream."""

    def __init__(self, inner: Any, *, is_whole: bool) -> None:
        self._inner = inner
        self._is_whole = is_whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held: list[bytes] = []
        async for part in self._inner:
            *lines, rest = [part] if self._is_whole else part.split(b"\n")
            for line in lines:
                yield repair.mended(b"".join((*held, line))) + b"\n"
                held = []
            held.append(rest)
        if any(held):
            yield repair.mended(b"".join(held))

    async def aclose(self) -> None:
        await self._inner.aclose()


async def mend_response(response: httpx2.Response) -> None:
    """Let the library read messages in which a text is cut in the middle of a character: it would take none of them."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("application/json", "text/event-stream") and "content-encoding" not in response.headers:
        response.stream = _Mended(response.stream, is_whole=kind == "application/json")


@asynccontextmanager
async def transport(
    address: str,
    headers: dict[str, str],
    tokens: LoginTokens,
    consent: Consent | None,
    timeout_s: float,
    heard: HttpRefusal,
    rules: HostRules,
) -> AsyncGenerator[Any, None]:
    """What the library reads from and writes to. Without tokens or a person to ask no login is tried.

    `rules` hold for every place but `address` and the issuer that a person wrote down.
    """
    is_known = consent is not None or tokens.issuer or tokens.kept.get("tokens")
    auth = _build_auth(address, tokens, consent) if is_known else None
    timeout = httpx2.Timeout(min(30.0, timeout_s), read=max(timeout_s, 30.0))
    guard = OriginGuard((address, tokens.issuer), rules)
    plain = {"Accept-Encoding": "identity", **headers}  # what is packed could not be mended
    async with httpx2.AsyncClient(headers=plain, timeout=timeout, auth=auth, transport=guard) as client:
        client.event_hooks = {"response": [heard.inspect_response, mend_response]}
        async with streamable_http_client(address, http_client=client) as streams:
            yield streams


def _build_auth(address: str, tokens: LoginTokens, consent: Consent | None) -> OAuthClientProvider:
    if tokens.issuer:
        ours = tokens.kept["client"]
        alone = ClientCredentialsOAuthProvider(address, tokens, ours["client_id"], ours["client_secret"], issuer=tokens.issuer)
        tokens.join(alone.context)
        return alone
    redirect = consent.redirect if consent is not None else "http://127.0.0.1/callback"
    wanted = OAuthClientMetadata(
        redirect_uris=[AnyUrl(redirect)],
        token_endpoint_auth_method="none",
        client_name="Owlbox",
    )
    tell, wait = (consent.tell, consent.wait) if consent is not None else (_refuse_redirect, _refuse_login)
    provider = OAuthClientProvider(address, wanted, tokens, tell, wait)
    tokens.join(provider.context)
    return provider


async def _refuse_login() -> AuthorizationCodeResult:
    raise ServerError("nobody logs in", outcome="auth_error")


async def _refuse_redirect(address: str) -> None:
    raise ServerError("the server wants a new login", outcome="auth_error", hint="owlbox mcp auth NAME")
