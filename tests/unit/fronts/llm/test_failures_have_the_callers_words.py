"""What a failure is to a caller of LMI, and to one of TGI."""

from __future__ import annotations

from typing import Any

import pytest

from adapter import errors
from adapter.errors import AdapterError
from adapter.fronts.failures import HttpError
from adapter.fronts.llm.parameters import BadParameter
from adapter.fronts.llm.schemas import Dynamic, Lmi, Tgi
from adapter.inference import Failure, InferenceFailed

OOM = "CUDA out of memory. Tried to allocate 2 GiB"
TABLE: list[tuple[HttpError | AdapterError, int, int, str | None]] = [
    (BadParameter("n", "x"), 424, 422, "validation"),
    (HttpError(400, "x"), 424, 422, "validation"),
    (HttpError(408, "x"), 408, 408, "validation"),
    (HttpError(413, "x"), 413, 413, "validation"),
    (HttpError(415, "x"), 415, 415, "validation"),
    (HttpError(404, "x"), 404, 404, None),
    (HttpError(503, "x"), 503, 503, "overloaded"),
    (InferenceFailed(Failure.INVALID, "x"), 424, 422, "validation"),
    (InferenceFailed(Failure.UNSUPPORTED, "x"), 424, 422, "validation"),
    (InferenceFailed(Failure.INTERNAL, "x"), 424, 424, "generation"),
    (InferenceFailed(Failure.NOT_FOUND, "x"), 404, 404, None),
    (InferenceFailed(Failure.UNAVAILABLE, "x"), 503, 429, "overloaded"),
    (InferenceFailed(Failure.TIMEOUT, "x"), 504, 500, "incomplete_generation"),
    (InferenceFailed(Failure.DENIED, "x"), 403, 403, None),
    (InferenceFailed(Failure.INTERNAL, OOM), 507, 429, "overloaded"),
    (InferenceFailed(Failure.INVALID, OOM), 507, 429, "overloaded"),
    (errors.InvalidModel("x"), 424, 424, "generation"),
    (errors.ModelNotLoaded("x"), 404, 404, None),
    (errors.ServerUnavailable("x"), 503, 503, "overloaded"),
    (errors.VolumeFailed("x"), 503, 503, "overloaded"),
]


@pytest.mark.parametrize(("error", "lmi", "tgi", "kind"), TABLE, ids=repr)
def test_the_table(error: HttpError | AdapterError, lmi: int, tgi: int, kind: str | None) -> None:
    assert [schema.status(error, ("m",)) for schema in (Lmi(), Dynamic(), Tgi())] == [lmi, lmi, tgi]
    body: dict[str, Any] = {"error": error.text} | ({"error_type": kind} if kind else {})
    assert Tgi().failed(tgi, error) == body


def test_the_name_of_a_model_is_not_out_of_memory() -> None:
    name = "CUDA out of memory"
    assert Lmi().status(InferenceFailed(Failure.INTERNAL, f"model '{name}' failed"), (name,)) == 424


def test_lmi_answers_a_failed_generation_as_if_there_were_a_text() -> None:
    assert Lmi().failed(424, HttpError(400, "x")) == {"error": "x", "code": 424}
    details = {"finish_reason": "error", "generated_tokens": None, "inputs": None, "tokens": None}
    for error in (BadParameter("n", "x"), InferenceFailed(Failure.INTERNAL, "x")):
        assert Lmi().failed(424, error) == {"generated_text": "", "details": details, "error": error.text, "code": 424}
        assert Dynamic().failed(424, error) == {"error": error.text, "code": 424, "message": "invoke handler failure"}
