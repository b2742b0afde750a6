"""A WebSocket of a browser that is carried on to something else: what the browser says by the caller, the way back by a thread."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from websockets.exceptions import ConnectionClosed
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.sync.connection import Connection

LOG = logging.getLogger(__name__)
QUEUE = 4  # frames of a browser that wait
PING_S = 50.0  # so that proxies keep the connection, and one that has gone is noticed
CLOSE_S = 2.0
GOING = 1001  # why it is closed, where nobody said


@contextmanager
def relaying(
    sock: socket.socket, most_bytes: int, carry_back: Callable[[Connection], object], close: Callable[[], object]
) -> Iterator[Connection]:
    """The connection on a socket whose handshake is over; at the end of the block both sides are closed, which ends the thread.

    `carry_back` runs in a thread of its own and ends when `close` has ended the other side. A browser that leaves is no error.
    """
    made = Connection(
        sock,
        ServerProtocol(state=OPEN, max_size=most_bytes, logger=LOG),
        ping_interval=PING_S,
        ping_timeout=PING_S,
        close_timeout=CLOSE_S,
        max_queue=QUEUE,
    )
    made.start_keepalive()
    back = threading.Thread(target=carry_back, args=(made,), name="http-back", daemon=True)
    back.start()
    try:
        yield made
    except (ConnectionClosed, OSError):
        pass
    finally:
        close()
        back.join(CLOSE_S)
        made.close(GOING)
