"""
Around every call of `mmesh.ModelRuntime`: status, metrics, and one canonical log line.

Three facts about grpc.aio 1.85 shape it, each held by a test. A `CancelledError` that leaves a call
because a *child* task was cancelled gives the caller no answer until its deadline. The text of an
unmapped exception goes to the peer. `AbortError` is a plain `Exception`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any, NoReturn, TypeAlias

import grpc
import structlog
from grpc import StatusCode, aio

from adapter._pb import model_runtime_pb2
from adapter.errors import UNEXPECTED, AdapterError, Superseded, UnloadUnfinished, WrongServer
from adapter.spi import status
from adapter.telemetry import logs, metrics

SERVICE = "/mmesh.ModelRuntime/"
_SHOWN_ID_CHARACTERS = 300

Call = Callable[[Any, Any], Any]
Context = aio.ServicerContext[Any, Any]
Method: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

log = structlog.stdlib.get_logger(__name__)


class CallInterceptor(aio.ServerInterceptor):
    """Wraps the five calls; health and reflection pass untouched."""

    def __init__(self) -> None:
        for method, reason in product(("loadModel", "unloadModel"), status.reasons()):
            metrics.FAILURES.labels(method, reason)  # from 0 on, or the first failure would be no increase
        for method in model_runtime_pb2.DESCRIPTOR.services_by_name["ModelRuntime"].methods_by_name:
            metrics.FAILURES.labels(method, AdapterError.reason)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Method | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Method | None:
        """Put `_answer` around a call of ours."""
        found = await continuation(handler_call_details)
        name = handler_call_details.method
        if found is None or not name.startswith(SERVICE) or found.unary_unary is None:
            return found
        call, method = found.unary_unary, name.removeprefix(SERVICE)

        async def answer(request: Any, context: Context) -> Any:
            return await _answer(method, call, request, context)

        return grpc.unary_unary_rpc_method_handler(answer, found.request_deserializer, found.response_serializer)


async def _answer(method: str, call: Call, request: Any, context: Context) -> Any:
    with logs.noting() as notes:
        line = _Line(method, getattr(request, "modelId", None), notes)
        with structlog.contextvars.bound_contextvars(**line.place):
            try:
                response = await call(request, context)
            except asyncio.CancelledError:
                if _is_cancelled_from_outside():
                    line.write(StatusCode.CANCELLED, reason="cancelled")  # the peer went, its deadline passed, or we stop
                    raise
                await _fail(line, context, Superseded("a later call for the same model overtook this one"))
            except AdapterError as error:
                await _fail(line, context, error)
            except aio.AbortError:
                line.write(_code_in(context), reason="aborted")
                raise
            except Exception as error:  # noqa: BLE001 - logged with its traceback in the canonical line
                await _fail(line, context, AdapterError(UNEXPECTED), crash=error)
            else:
                line.write(StatusCode.OK)
                return response


def _is_cancelled_from_outside() -> bool:
    """False when the CancelledError comes from a task that this call was waiting for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _code_in(context: Context) -> StatusCode:
    """The code that a call aborted with; grpc.aio keeps its number."""
    return next((code for code in StatusCode if context.code() in (code, code.value[0])), StatusCode.UNKNOWN)


async def _fail(line: _Line, context: Context, error: AdapterError, crash: Exception | None = None) -> NoReturn:
    if line.model_id:
        error.located(line.model_id, None)
    code, text = status.code_of(error, line.method), status.text_of(error)
    is_for_operators = crash is not None or isinstance(error, (WrongServer, UnloadUnfinished))
    failure = {"error": text} | ({} if crash is None else {"exc_info": crash})
    line.write(code, reason=error.reason, is_for_operators=is_for_operators, **failure)
    await context.abort(code, text)


class _Line:
    """The metrics and the canonical log line of one call, written just before its answer leaves."""

    def __init__(self, method: str, model_id: str | None, notes: dict[str, Any]) -> None:
        self.method = method
        self.model_id = model_id
        self.place = {"method": method} | ({"model_id": model_id[:_SHOWN_ID_CHARACTERS]} if model_id else {})
        """Bound to every line that is logged inside the call."""
        self._notes = notes
        self._started = asyncio.get_running_loop().time()

    def write(self, code: StatusCode, reason: str | None = None, *, is_for_operators: bool = False, **failure: Any) -> None:
        """Once for each call."""
        seconds = asyncio.get_running_loop().time() - self._started
        metrics.RPC_SECONDS.labels(self.method, code.name).observe(seconds)
        if reason is not None:
            metrics.FAILURES.labels(self.method, reason).inc()
            failure = {"reason": reason, **failure}
        outcome = {"code": code.name, "seconds": round(seconds, 4), **failure}
        _level(code, is_for_operators)("rpc", **{**self._notes, **self.place, **outcome})


def _level(code: StatusCode, is_for_operators: bool) -> Callable[..., Any]:
    """Error: an operator must act. Warning: a model or a neighbour failed."""
    if is_for_operators:
        return log.error
    if code in (StatusCode.OK, StatusCode.CANCELLED, StatusCode.ABORTED):
        return log.info
    return log.warning
