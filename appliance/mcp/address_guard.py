"""Where requests to a server of tools may go: to the address a person wrote down, and else to what the fetcher may reach.

A server names further addresses itself, for its login: each is judged by the rules of the web, and the connection goes to a judged
address and nowhere else. A proxy of the environment is used for the address that was written down alone, because a proxy looks
names up by itself. In the bridge process alone.
"""

import asyncio
from collections.abc import Sequence

import httpx2

from appliance.clock import monotonic_s
from appliance.runtime.host_lookup import Deadline, Resolve, addresses_of, look_up, proxy_of
from appliance.text import urls
from appliance.text.urls import Target
from appliance.web import addresses
from appliance.web.hosts import Rules

LOOK_UP_S = 10.0


class Guard(httpx2.AsyncBaseTransport):
    """A transport that reaches the origins of `own`, as they are, and others by the rules; Refused for the rest."""

    def __init__(self, own: Sequence[str], rules: Rules, resolve: Resolve = look_up) -> None:
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
