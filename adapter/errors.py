"""
Every failure the adapter can report, grouped by what the caller may conclude from it.

Owns the tree and nothing else. Foreign exceptions become these where a library is touched:
`adapter.storage` (one place per type of store), `adapter.triton`, `adapter.volume`.
A text is one readable sentence, root cause
first, and never holds a secret: ModelMesh stores the text in its registry and shows it to users.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

UNEXPECTED = "internal error of the adapter; its log has the details"
"""The whole text of an unforeseen failure: its own text might say anything."""


def some(words: Sequence[str], most: int) -> str:
    """`a, b and 3 more`: no text grows with the number of things that it names."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


class AdapterError(Exception):
    """A failure with words for the person who reads the model's status."""

    reason: ClassVar[str] = "internal"
    """Stable label, the `reason` of logs and metrics: the name of the class in snake_case, where it gives no other."""

    code: ClassVar[str] = "INTERNAL"
    """Name of gRPC's code: what the caller of ModelMesh's calls may conclude."""

    def __init_subclass__(cls, code: str = "") -> None:
        cls.code = code or cls.code
        if "reason" not in vars(cls):
            cls.reason = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.model_id: str | None = None
        self.phases: str | None = None

    def located(self, model_id: str, phases: str | None) -> AdapterError:
        """Note which model it was and where the time went; the first caller's answer stays."""
        self.model_id = self.model_id or model_id
        self.phases = self.phases or phases
        return self


class Rejected(AdapterError, code="FAILED_PRECONDITION"):
    """Triton was never asked: the same request would fail again."""


class InvalidRequest(Rejected, code="INVALID_ARGUMENT"):
    """The request is wrong: model id, modelKey, modelPath, storage configuration."""


class InvalidModel(Rejected, code="INVALID_ARGUMENT"):
    """Triton could not serve the files: layout, config.pbtxt, schema."""


class NoCapacity(Rejected, code="RESOURCE_EXHAUSTED"):
    """The model does not fit into the usable memory capacity."""


class Draining(Rejected, code="UNAVAILABLE"):
    """The adapter is shutting down and takes no new loads."""


class WrongServer(Rejected):
    """Triton runs in a mode, or over a folder, that the adapter cannot work with."""


class CrashesTriton(Rejected):
    """Triton died too often while it was loading this content."""


class ModelNotLoaded(Rejected, code="NOT_FOUND"):
    """A question about a model that is not loaded."""

    reason = "not_loaded"


class SourceError(AdapterError, code="UNAVAILABLE"):
    """Storage did not give us the model."""


class SourceNotFound(SourceError, code="NOT_FOUND"):
    """Storage has nothing at that place."""


class SourceDenied(SourceError, code="PERMISSION_DENIED"):
    """Storage refused the credentials, or there were none."""


class SourceUnavailable(SourceError):
    """Storage is away, answers 5xx, or sends too little, also after retries."""

    def __init__(
        self, text: str, *, can_pass: bool = True, retry_after_seconds: float | None = None, cause: str = "its answers are wrong"
    ) -> None:
        super().__init__(text)
        self.is_of_giver = False
        """What gives out credentials is in trouble, not the store."""
        self.cause = cause
        """What is wrong with the endpoint, without bucket and key: other loads from there are told so too."""
        self.can_pass = can_pass
        """False: the same request would fail again, as with a certificate that is not trusted."""
        self.retry_after_seconds = retry_after_seconds
        """What the store asked for, where it did."""


class SourceChanged(SourceError):
    """An object was replaced during a pull, also in the pull's retries."""


class DiskFull(AdapterError, code="RESOURCE_EXHAUSTED"):
    """The files of the model do not fit on the volume."""


class VolumeFailed(AdapterError, code="UNAVAILABLE"):
    """The volume cannot be read or written: read-only, an error, or no descriptor is left."""


class ServerError(AdapterError):
    """Triton was asked, and it did not work."""

    reason = "server"


class ServerUnavailable(ServerError, code="UNAVAILABLE"):
    """Triton is away, or died during the call."""


class ServerDied(ServerUnavailable):
    """Triton died while it was loading the model, which may be the cause. The load is not repeated."""


class ModelRefused(ServerError):
    """Triton tried to load the model and failed."""


class UnloadUnfinished(ServerError, code="UNAVAILABLE"):
    """Triton has not freed the model within the bound; ModelMesh repeats the unload."""


class BudgetExceeded(AdapterError, code="DEADLINE_EXCEEDED"):
    """The load did not end within the announced loading timeout."""


class Superseded(AdapterError, code="ABORTED"):
    """An unload or a purge of the same model overtook this load."""


class Abandoned(AdapterError, code="ABORTED"):
    """The last caller of a load has gone; the load is undone."""


class StartError(Exception):
    """The adapter cannot start; one sentence says why. The exit code is 1."""


class ListenError(StartError):
    """A port or a socket of ours cannot be used."""
