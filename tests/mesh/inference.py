"""A client's request: the id goes into its bytes, and a model that the runtime has lost is unloaded, loaded and asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.mesh.ground import Copy, Ground, State
from tests.mesh.runtime import CallError
from tests.mesh.wire import inject

ROUNDS = 8
UNKNOWN = "Request for unknown model"
UNKNOWN_ENDS = (" is not found", " has no available versions")
INJECTED_SERVICE = "inference.GRPCInferenceService"


class InferenceError(Exception):
    """What a client reads."""


class Inference:
    """The way of requests through one process."""

    def __init__(self, ground: Ground, *, copy_of: Callable[[str], Copy], lose: Callable[[Copy], None]) -> None:
        """`copy_of`: in the cache, or begun now (raises LoadError). `lose`: the runtime has it no more; a clean-up unload comes."""
        self._ground = ground
        self._copy_of = copy_of
        self._lose = lose

    async def call(self, model_id: str, method: str, request: bytes, seconds: float) -> bytes:
        """
        The runtime's answer.

        Raises:
            LoadError: the model cannot be loaded now.
            InferenceError: the runtime's error, or no answer in time.
        """
        if self._ground.announced.methods and f"{INJECTED_SERVICE}/{method}" not in self._ground.announced.methods:
            raise InferenceError(f"UNIMPLEMENTED: {method} is not announced")
        try:
            async with asyncio.timeout(seconds):
                return await self._rounds(model_id, method, inject(request, model_id), seconds)
        except TimeoutError:
            raise InferenceError(f"DEADLINE_EXCEEDED: no answer within {seconds:g} s") from None

    async def _rounds(self, model_id: str, method: str, request: bytes, seconds: float) -> bytes:
        for _ in range(ROUNDS):
            copy = self._copy_of(model_id)
            await copy.arrival()
            copy.in_flight += 1
            try:
                answer = await self._ground.runtime.call(method, request, seconds)
            except CallError as error:
                if not is_lost(error):
                    self._failed(copy, error)
                    raise InferenceError(f"INTERNAL: ModelRuntime {error}" if error.code == "UNAVAILABLE" else str(error)) from None
                self._heal(copy, error)
            else:
                copy.failing_since = None
                return answer
            finally:
                copy.in_flight -= 1
        words = f"{model_id} is not found by Triton, {ROUNDS} times in one request"
        self._ground.watch.tell("what is called loaded answers", words, model_id)
        raise InferenceError(f"INTERNAL: {words}")

    def _heal(self, copy: Copy, error: CallError) -> None:
        """The copy that was asked is dropped, unless another task has done so."""
        watch = self._ground.watch
        if copy.state is not State.ACTIVE:
            return
        watch.figures.count("heals")
        watch.note(copy.model_id, f"the runtime has lost it: {error}")
        if watch.was_calm(copy.loaded_at):
            watch.tell(
                "what is called loaded answers", f"{copy.model_id} was loaded, and nothing has happened since: {error}", copy.model_id
            )
        self._lose(copy)

    def _failed(self, copy: Copy, error: CallError) -> None:
        watch = self._ground.watch
        watch.note(copy.model_id, f"inference failed: {error}")
        if error.code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
            copy.failing_since = None  # the model has answered
            return
        if copy.failing_since is None:
            copy.failing_since = self._ground.now()
        seconds = min(self._ground.now() - copy.failing_since, watch.calm_seconds())
        if seconds > watch.heal_seconds:
            watch.tell("what is called loaded answers", f"{copy.model_id} has failed for {seconds:.0f} s: {error}", copy.model_id)


def is_lost(error: CallError) -> bool:
    """Whether ModelMesh takes this for "the runtime does not have the model". Source: `SidecarModelMesh.java` 304-324."""
    if error.code == "UNAVAILABLE":
        return error.text.startswith(UNKNOWN) and error.text.endswith(UNKNOWN_ENDS)
    if error.code == "INVALID_ARGUMENT":
        return error.text.startswith("Model ") and error.text.endswith("not found")
    return error.code == "NOT_FOUND"
