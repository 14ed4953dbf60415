"""
What an HTTP front may ask of the lifecycle, as a Protocol: which models there are, a load, an unload.

A front of ModelMesh's kind asks `ports.Lifecycle`; both faces share one table of models, so a name is one model whoever asked for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from adapter.errors import Rejected
from adapter.model import LoadedModel, ModelSpec


class AlreadyLoaded(Rejected):
    """A front asks for a load of a name that is loaded, or is being loaded."""

    reason = "already_loaded"


@dataclass(frozen=True)
class KnownModel:
    """A model as a front may see it."""

    model_id: str
    """Triton's name of it."""
    name: str
    """What its caller calls it: the model id, where nobody named it otherwise."""
    url: str
    """What its caller gave, or where its files are placed."""
    is_serving: bool
    """LOADED: answers inference. False while it is being loaded, unloaded, or loaded again after a restart of Triton."""
    is_coming: bool
    """It is being loaded, for the first time or again."""
    is_coming_back: bool
    """It is being loaded again: Triton has lost it."""
    is_going: bool
    """It is being unloaded, or taken down after a failure."""
    placed: str | None = None
    """Identity of its directory in Triton's folder: another one after each load. None: nobody here has placed it."""


class Models(Protocol):
    """What a front may ask of the lifecycle, beside ModelMesh or without it."""

    @property
    def obstacle(self) -> str | None:
        """Why no model can be loaded or asked now, in words: Triton is away or wrong, or its models are not taken over yet."""
        ...

    def known(self) -> Sequence[KnownModel]:
        """
        All models, sorted by name; never waits.

        Raises:
            ServerUnavailable: an earlier process had models, and Triton has not told yet which of them it serves.
        """
        ...

    def find(self, name: str) -> KnownModel | None:
        """
        One of them. Never waits.

        Raises:
            ServerUnavailable: as `known`, and nobody knows yet whether there is one of this name.
        """
        ...

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
        ...

    async def unload(self, model_id: str) -> None:
        """As `Lifecycle.unload`."""
        ...
