"""
What the lifecycle needs from store, repository, Triton and journal, as Protocols.

`adapter.wiring` hands out the implementations.

Cancellation: every coroutine here may be cancelled at any await. It then leaves nothing behind of
its own, and its threads have ended, before the `CancelledError` goes on. There are two exceptions. `ModelServer.load`: Triton cannot
cancel a load, so `unload` waits for it. A read of a volume claim: nothing wakes a thread that hangs there, so it is left
behind, and does nothing but read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adapter.model import Artifact, Layout, Listing, ModelSpec, Overrides, Placed, Rows, SourceFile, Survey
from adapter.records import Crashes, Digests, Entry, Measure, Needed, Record, Sized
from adapter.settings.capacity import CapacitySettings
from adapter.volume.trees import Ends
from adapter.waits import Waits

Wanted = Callable[[Listing], Collection[SourceFile]]
"""Which small files of a listing are to be read."""


class StoredModel(Protocol):
    """One model in its store, listed and ready to be read."""

    @property
    def listing(self) -> Listing:
        """What the store had when it was asked."""

    async def read(self, file: SourceFile) -> bytes:
        """
        Content of a small file (config.pbtxt, schema; at most 4 MiB).

        Raises:
            InvalidModel: the file is larger than that.
            SourceError: it could not be read, or is no longer what was listed.
        """

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        """
        Pull these files into an artifact: staged, verified, published as a whole.

        Raises:
            SourceError: any file could not be read whole and unchanged (SourceChanged: list again).
            DiskFull: with both numbers.
        """

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...]) -> Mapping[SourceFile, Ends]:
        """
        Both ends of files that `fetch` gave.

        Raises:
            InvalidModel: one is no regular file.
            AdapterError: one cannot be read.
            SourceUnavailable: the volume claim that they are in does not answer.
        """

    def close(self) -> None:
        """Give back what is held for it and was not fetched. The caller of `open` does so at the end."""


class ModelStore(Protocol):
    """Where models come from."""

    async def open(self, spec: ModelSpec, waits: Waits) -> StoredModel:
        """
        Find the model and list it. What this, and later reads and pulls, wait for is noted in `waits`.

        Raises:
            InvalidRequest: storage configuration or path are wrong.
            SourceNotFound: nothing is there.
            SourceError: the store could not be asked.
        """

    async def survey(self, spec: ModelSpec, timeout_seconds: float, wanted: Wanted) -> Survey:
        """
        What can be learned of the model's size within the time, whatever the store does.

        Has threads of its own. What hangs is left behind, not waited for. The small files of the listing that are `wanted` are
        read, too; `wanted` is asked in a thread.

        Raises:
            InvalidRequest, SourceError: as `open`, when the store answered in time.
            InvalidModel: from `wanted`.
        """

    async def release(self, artifact: Artifact) -> None:
        """
        Give up an artifact that `fetch` returned. Never fails; what cannot be deleted is retried later.

        Completes even when it is cancelled; the cancel goes on afterwards.
        """

    async def reclaim(self, key: str) -> Artifact | None:
        """Take hold of an artifact that an earlier process fetched for a model that is still placed; None: it is not there any more."""


class ModelRepository(Protocol):
    """Triton's model repository folder, of which we are the only writer, or (V2_REPOSITORY_API) one of several."""

    folder: Path
    """Where it is."""

    @property
    def problem(self) -> str | None:
        """Why nothing can be placed any more, in words: another adapter works on the volume. From any thread."""

    def is_of_others(self, name: str) -> bool:
        """Whether a directory of this name, if there is one, may be another writer's: then the adapter does not take it down."""

    async def claim(self, model_id: str) -> None:
        """Make the name ours, before anything is written of it. Raises InvalidRequest: another client has a model of this name there."""

    async def place(self, model_id: str, layout: Layout, artifact: Artifact) -> str:
        """Make the model visible to Triton in one rename; of a bundle, the top model last. Returns its identity. Raises DiskFull."""

    async def remove(self, model_id: str) -> None:
        """Take the model, and what else its bundle has, out of the repository. Absent is fine. Raises AdapterError: the disk keeps it."""

    async def sweep(self) -> None:
        """Take out what the adapter has not placed, and what a check of an earlier process has left."""

    async def inventory(self) -> Mapping[str, Placed]:
        """What the folder holds, by model id. Asks nothing of a claim's server: links that leave our folders are not followed."""

    async def identities(self, model_ids: Collection[str]) -> Mapping[str, str]:
        """Of these models, those that the folder holds, and which directory each is. Unlike `inventory` it looks at no files."""


class ModelServer(Protocol):
    """Triton, as far as models are concerned. Every call waits for a Triton that is away."""

    @property
    def problem(self) -> str | None:
        """Why Triton cannot be used now, in words; None when it answers."""

    @property
    def notice(self) -> str | None:
        """What is told of a Triton that can be used, in words: that its index is slow. From any thread."""

    async def returned(self) -> bool:
        """
        Return when Triton answers after it had been away, silent, or its connection broken: what it holds may be gone.

        Each such return is told once, to the one caller of this.

        Returns:
            Whether it is certainly another process (its port was closed meanwhile, or it has another name). False proves nothing.
        """

    def confirm_restart(self) -> None:
        """The last return was a restart: the index shows that models are gone. Counted once, also where it was certain before."""

    async def load(self, model_id: str, on_sent: Callable[[], Awaitable[None]], *, has_limit: bool = False) -> None:
        """
        Wait for a loading slot and for Triton, then load the placed model; returns when Triton is ready to serve it.

        A slot is free again when Triton has answered, and when the caller goes: Triton then goes on with a load without a caller.
        Of both kinds together there are never more than Triton has load threads.

        Args:
            model_id: a placed model.
            on_sent: awaited once, just before Triton is asked. A load that is cancelled earlier leaves nothing in Triton.
            has_limit: it gives its slot up when Triton has had it for the announced timeout.

        Raises:
            BudgetExceeded: it has a limit, and Triton has had it for longer than that.
            ModelRefused: Triton tried and failed; the text is Triton's reason.
            ServerDied: Triton died while it had the load. A load that Triton did not take is repeated instead.
            WrongServer: Triton is not in explicit mode.
        """

    async def load_other(self, name: str, overrides: Overrides) -> None:
        """As `load`, of a model that the adapter has not placed; with `overrides` Triton loads what they say."""

    def queue(self) -> str | None:
        """Which models hold the loading slots, or Triton's load threads, and since when; None when the next load has its turn."""

    async def unload(self, model_id: str, *, has_dependents: bool | None = None) -> None:
        """
        Returns when no version of the model, or of its bundle's inner models, holds memory. Unknown models are fine.

        With `has_dependents` what Triton unloads with an ensemble goes, too; None: unless it is a bundle. The files of models that the
        adapter has not placed are never touched.

        Has no bound of its own: the caller has one. Waits for a load of the same model that was cancelled here but still runs
        in Triton.

        Raises:
            WrongServer: Triton is not in explicit mode.
            ServerError: Triton does not take the unload.
        """

    def obstacle(self, model_id: str) -> str:
        """What an unload of the model, or a load that was sent, is waiting for, in words."""

    async def is_ready(self, model_id: str) -> bool:
        """Whether Triton serves the model now."""

    async def index(self) -> Rows:
        """
        All rows of the repository index, waiting for a Triton that is away.

        One question is shared by all callers at a time. A caller never gets the answer to an earlier question.

        Raises:
            WrongServer: Triton restricts the index.
        """

    async def reported_bytes(self, model_id: str) -> int | None:
        """Memory that Triton's backend reports for the model; 0 when it reports none, None when Triton has no word on the model."""

    async def verify(self) -> str:
        """
        Wait until Triton answers, and make sure that it is ours to control.

        Returns:
            Triton's version.

        Raises:
            WrongServer: not in explicit mode, or its repository is not our folder.
        """

    async def purge(self) -> None:
        """Unload every model in any state; returns when none holds memory and the repository is empty."""


class Memory(Protocol):
    """What models take of memory in truth. Nothing here waits, but `settled`."""

    def follow(
        self, on_measured: Callable[[str, Measure], None], booked_bytes: Callable[[], int | None], on_look: Callable[[], None]
    ) -> None:
        """
        Callbacks: one gets what a model takes, by its id; one gives the sum of all told sizes (None: Triton may have models that are
        not known); one is called at each look.
        """

    def moved(self, model_id: str, state: str, size_bytes: int) -> None:
        """A model has come into this state; `size_bytes`: what is believed of it."""

    def is_unsettled(self, model_id: str) -> bool:
        """Whether what a loaded model takes is seen soon."""

    async def settled(self, model_id: str | None = None) -> None:
        """Return when that was told, or after some seconds; without an id, when it was seen what Triton takes with no model."""

    def check(self, size_bytes: int, gpus: int) -> None:
        """Raises NoCapacity: memory is so short in truth that a model of this size is not loaded; this number of GPUs would have it."""

    def in_force(self, configured: CapacitySettings) -> CapacitySettings:
        """What is announced now: as configured, or of what is measured (CAPACITY_SOURCE)."""

    @property
    def notice(self) -> str | None:
        """What is to be said of memory, in words. From any thread."""


class Journal(Protocol):
    """
    What each id holds, kept across processes of one boot of the kernel.

    Notes are taken at once and written in order by a thread; of several notes on one id only the last one needs to be
    written. Nothing here raises: a journal that cannot be written is dropped and begun anew, and an adapter without one
    works as if it had never known anything.
    """

    digests: Digests
    """With the salt of this journal."""
    records: dict[str, Record]
    """By model id: what an earlier process left, and what was noted since. Only `note` and `forget` change it and the next ones."""
    crashes: dict[str, Crashes]
    """By digest, likewise."""
    sizes: dict[str, Sized]
    """By `Content.spec`, likewise: what was loaded last of a request. Those noted longest ago come first, and go first."""
    needed: dict[str, Needed]
    """One, or none: what Triton needs beside the sizes that were told."""

    def now(self) -> float:
        """Seconds since the boot of the kernel, sleep included: the clock of all records."""

    def note(self, entry: Entry) -> None:
        """Keep it, in place of an earlier one of this id or digest."""

    def forget(self, entry: Entry) -> None:
        """Keep nothing of its id or digest."""

    async def written(self) -> None:
        """Return when all that was noted before is in the file, or the journal was dropped."""


@dataclass(frozen=True)
class Ports:
    """Those that the lifecycle works with."""

    store: ModelStore
    repository: ModelRepository
    server: ModelServer
    journal: Journal
    memory: Memory
