"""UnifiedPush: notifications for an app on a phone, by the distributor that its person has chosen.

The app names its endpoint and its keys, which a person gives to `owlbox channel subscribe unifiedpush`. What is sent is Web Push,
as the standard of UnifiedPush asks for: encrypted for the app alone. An endpoint without keys is refused, because its server would
read along; for such there is ntfy.
"""

from collections.abc import Callable
from typing import Annotated, Any

from appliance.channels.connectors.push import WebPush
from appliance.sessions.push_subscriptions import Subscriptions


def connect(
    contact: Annotated[str, "whom push servers may ask about messages: mailto: or https:"] = "mailto:owlbox@example.org",
    *,
    subscriptions: Subscriptions,
    fetch: Any,
    secret: Callable[[str], str],
    keep_secret: Callable[[str, str], Any],
) -> WebPush:
    """The channel of this table."""
    return WebPush("unifiedpush", contact, subscriptions, fetch, secret, keep_secret)
