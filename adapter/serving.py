"""
What the lifecycle gives to the faces, as Protocols: to the SPI (`Lifecycle`) and to the HTTP fronts (`Models`).

All share one table of models, so a name is one model whichever of them has asked for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from adapter.errors import ModelNotLoaded, Rejected, ServerUnavailable
from adapter.model import ModelSpec


class AlreadyLoaded(Rejected):
    """A front asks for a load of a name that is loaded, or is being loaded."""


@dataclass(frozen=True)
class KnownModel:
    """A model as a front may see it."""

    model_id: str
    """Triton's name of it."""
    name: str
    """What its caller calls it: the model id, where it has no other name."""
    url: str = ""
    """What its caller gave, or where its files are placed."""
    is_serving: bool = True
    """LOADED: answers inference. False while it is being loaded, unloaded, or loaded again after a restart of Triton."""
    is_coming_back: bool = False
    """It is being loaded again: Triton has lost it."""
    is_going: bool = False
    """It is being unloaded, or taken down after a failure."""
    placed: str | None = None
    """Identity of its directory in Triton's folder: another one after each load. None: the adapter has not placed it."""
    version: str = ""
    """The one that is asked; empty for whichever Triton takes."""

    @property
    def is_coming(self) -> bool:
        """It is being loaded, for the first time or again."""
        return not self.is_serving and not self.is_going


NOT_FOUND = "Model not found: "
"""Of all fronts that have a text of their own for it; then comes the name."""


def serving(model: KnownModel | None, name: str) -> KnownModel:
    """
    A model that serves; `model` is what was found by this name.

    Raises:
        ServerUnavailable: it is being loaded again.
        ModelNotLoaded: it does not serve.
    """
    if model is not None and model.is_coming_back:
        raise ServerUnavailable(f"the model {name!r} is being loaded again: Triton has restarted")
    if model is None or not model.is_serving:
        raise ModelNotLoaded(f"{NOT_FOUND}{name}")
    return model


@dataclass(frozen=True)
class LoadedModel:
    """What a load is answered with."""

    size_bytes: int
    """0: it is measured now, and `size_of` tells it soon. Never of a model that a front has loaded."""
    max_concurrency: int


@dataclass(frozen=True)
class RuntimeState:
    """Whether ModelMesh may start to use us."""

    is_ready: bool
    version: str
    """Triton's version, as far as it is known."""
    problem: str | None
    """Why it is not ready, for logs and `/readyz`."""


class Lifecycle(Protocol):
    """What ModelMesh can ask for, already decoded."""

    async def load(self, spec: ModelSpec) -> LoadedModel:
        """
        Load the model, join an equal load, or confirm a loaded equal model.

        Raises:
            AdapterError: it was not loaded, and what had been begun is undone.
        """

    async def unload(self, model_id: str) -> None:
        """
        Free everything the model holds. Unknown models are fine.

        Raises:
            UnloadUnfinished: not within the bound; says what the unload was waiting for.
            ServerError, WrongServer: Triton does not take the unload. ModelMesh repeats it, as the one before.
        """

    async def predict(self, spec: ModelSpec) -> int:
        """Size in bytes that the model will have, well within 500 ms. Never raises for trouble with storage."""

    def default_prediction(self) -> int:
        """Size in bytes of a model of which nothing can be known."""

    async def size_of(self, model_id: str) -> int:
        """Size in bytes of a loaded model, never 0. Raises ModelNotLoaded."""

    async def status(self) -> RuntimeState:
        """Whether ModelMesh may start; begins the purge that comes before it."""


class Models(Protocol):
    """What a front may ask of the lifecycle, beside ModelMesh or without it."""

    @property
    def obstacle(self) -> str | None:
        """Why no model can be loaded or asked now, in words: Triton is away or wrong, or its models are not taken over yet."""

    def known(self) -> Sequence[KnownModel]:
        """
        All models, sorted by name; never waits.

        Raises:
            ServerUnavailable: an earlier process had models, and Triton has not told yet which of them it serves.
        """

    def find(self, name: str) -> KnownModel | None:
        """
        One of them. Never waits.

        Raises:
            ServerUnavailable: as `known`, and it is not known yet whether there is one of this name.
        """

    def find_id(self, model_id: str) -> KnownModel | None:
        """As `find`, by Triton's name."""

    async def load_new(self, spec: ModelSpec) -> LoadedModel:
        """
        Load a model of which nothing is there. Its memory is booked before Triton is asked, and given back when that fails.

        Cancelling the call undoes the load.

        Raises:
            AlreadyLoaded: it is loaded, or a load or restore of it is under way; raised at once. What is being unloaded is waited for.
            NoCapacity: it does not fit beside what is loaded, being loaded, and not freed yet.
            ServerUnavailable: what Triton holds is not known.
            AdapterError: as `Lifecycle.load`.
        """

    async def unload(self, model_id: str) -> None:
        """As `Lifecycle.unload`."""
