"""
botocore's credential chain over connections that can be cut.

The services that it asks (STS, SSO) are clients of the session, whose requests an event hands over. The metadata of an
instance and of a container are asked through sessions of their own, and programs of a profile are waited for without
an end: there is no way to hand in anything else, so their private attributes are replaced. A test of each would hang.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.credentials import CredentialResolver, ProcessProvider

from adapter.workers import Stop

PROGRAM_SECONDS = 13
"""As long as a request may take that is connected and answered at the last moment."""


class Sender(Protocol):
    """The one method that the fetchers ask a botocore session for."""

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """The whole answer."""
        ...


def reach_through(
    resolver: CredentialResolver, *, instance: Callable[[float], Sender], container: Callable[[float], Sender], stop: Callable[[], Stop]
) -> None:
    """
    Have the chain ask through our own senders, once: repeating is not its business, and its pauses cannot be woken.

    Args:
        resolver: the default chain.
        instance: makes the sender to the instance's metadata, with the timeout of the environment, in seconds.
        container: makes the sender to the container's endpoint, with botocore's timeout, in seconds.
        stop: tells the stop of the call that is under way in this thread.
    """
    parts: Any = resolver
    role = parts.get_provider("iam-role")._role_fetcher
    role._session, role._num_attempts = instance(role._timeout), 1
    task = parts.get_provider("container-role")._fetcher
    task._session = container(task.TIMEOUT_SECONDS)
    task.RETRY_ATTEMPTS, task.SLEEP_TIME = 1, 0
    run = _runner(stop)
    parts.get_provider("custom-process")._popen = run
    profiles = parts.get_provider("assume-role")._profile_provider_builder

    def program_of(profile_name: str) -> ProcessProvider:
        return ProcessProvider(profile_name, load_config=lambda: profiles._session.full_config, popen=run)

    profiles._create_process_provider = program_of


def _runner(stop: Callable[[], Stop]) -> Any:
    class Program(subprocess.Popen[bytes]):
        """A program that is given up with the call, or after a while, with all that it has started."""

        def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
            try:
                with stop().waking(self._end):
                    return super().communicate(input, timeout or PROGRAM_SECONDS)
            except subprocess.TimeoutExpired:
                self._end()
                self.wait()
                raise

        def _end(self) -> None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def run(arguments: list[str], **options: Any) -> Program:
        return Program(arguments, stdin=subprocess.DEVNULL, start_new_session=True, **options)

    return run
