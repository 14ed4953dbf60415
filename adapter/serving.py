"""
What the lifecycle tells the SPI and the HTTP fronts of models, and of itself.

All share one table of models, so a name is one model whichever of them has asked for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from adapter.errors import ModelNotLoaded, Rejected, ServerUnavailable


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
