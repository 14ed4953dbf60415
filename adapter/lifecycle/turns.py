"""
Who of the LOST models is next: last confirmed first, and nobody whom a call waits for. Costs the same for thousands as for one.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from adapter.lifecycle.operation import Model
from adapter.lifecycle.states import State


class Turns:
    """A heap of models; who has left LOST meanwhile is passed over."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Model]] = []
        self._numbers = itertools.count()
        self._calls: Counter[str] = Counter()
        """Calls that wait for the operation of an id to end."""

    def __len__(self) -> int:
        return len(self._heap)

    def clear(self) -> None:
        """Nobody waits."""
        self._heap.clear()

    def add(self, model: Model) -> None:
        """For whoever may be next from now on: when it is LOST, when its operation has ended, when its calls have gone."""
        if _is_free(model):
            heapq.heappush(self._heap, (-model.confirmed, next(self._numbers), model))

    def take(self, count: int) -> list[Model]:
        """So many models that are LOST, without an operation, and that no call waits for."""
        found: dict[str, Model] = {}
        while self._heap and len(found) < count:
            _, _, model = heapq.heappop(self._heap)
            if self.may_take(model):
                found[model.model_id] = model
        return list(found.values())

    def may_take(self, model: Model) -> bool:
        """Whether the model may have its turn now."""
        return _is_free(model) and model.model_id not in self._calls

    @contextmanager
    def called(self, model_id: str) -> Iterator[None]:
        """While inside, a call waits to begin an operation of this id: it is nobody else's turn. `add` the model afterwards."""
        self._calls[model_id] += 1
        try:
            yield
        finally:
            self._calls[model_id] -= 1
            if not self._calls[model_id]:
                del self._calls[model_id]


def _is_free(model: Model) -> bool:
    return model.state is State.LOST and model.operation is None
