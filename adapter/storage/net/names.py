"""Addresses of names, asked for in threads of ours: where libcurl's own look-up does not tell enough."""

from __future__ import annotations

import asyncio
import socket

from adapter.storage.net.failures import CONNECT_SECONDS, NAMES_AWAY, UNRESOLVED, Unanswered
from adapter.workers import Workers

THREADS = 8
"""The operating system's resolver blocks for as long as its name servers are silent, 5 to 30 s, and nothing wakes it."""


class Names:
    """Looks names up. A thread whose caller has given up is left behind."""

    def __init__(self) -> None:
        """Raises StartError: the process cannot have these threads."""
        self._threads = Workers("name", THREADS)

    async def addresses(self, host: str) -> tuple[str, ...]:
        """
        All of them, as numbers. Numbers in any notation are names as well.

        Raises:
            Unanswered: there is none, or name servers do not tell.
        """
        asked = self._threads.executor.submit(socket.getaddrinfo, host.strip("[]"), None, type=socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                found = await asyncio.wrap_future(asked)
        except TimeoutError:
            raise Unanswered(UNRESOLVED) from None
        except socket.gaierror as error:
            if error.errno == socket.EAI_NONAME:
                raise Unanswered("its name cannot be resolved (there is no such name)", can_pass=False) from error
            raise Unanswered(NAMES_AWAY if error.errno == socket.EAI_AGAIN else "its name cannot be resolved") from error
        except (UnicodeError, OSError) as error:
            raise Unanswered("its name is not a host name", can_pass=False) from error
        return tuple(dict.fromkeys(str(place[0]) for *_, place in found))

    def close(self) -> None:
        """Take no more work."""
        self._threads.close()
