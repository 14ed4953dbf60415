"""One table from failures to gRPC codes, by what the caller may conclude."""

from collections.abc import Iterator

import pytest
from grpc import StatusCode

from adapter import errors
from adapter.errors import AdapterError, BudgetExceeded
from adapter.spi import codec
from tests.tables import errors_markdown

BY_MEANING = {
    StatusCode.INVALID_ARGUMENT: {errors.InvalidRequest, errors.InvalidModel},
    StatusCode.FAILED_PRECONDITION: {errors.CrashesTriton, errors.WrongServer, errors.Rejected},
    StatusCode.NOT_FOUND: {errors.SourceNotFound, errors.ModelNotLoaded},
    StatusCode.PERMISSION_DENIED: {errors.SourceDenied},
    StatusCode.UNAVAILABLE: {
        errors.SourceError, errors.SourceUnavailable, errors.SourceChanged, errors.VolumeFailed,
        errors.ServerUnavailable, errors.ServerDied, errors.UnloadUnfinished, errors.Draining,
    },
    StatusCode.RESOURCE_EXHAUSTED: {errors.NoCapacity, errors.DiskFull},
    StatusCode.DEADLINE_EXCEEDED: {errors.BudgetExceeded},
    StatusCode.INTERNAL: {errors.AdapterError, errors.ServerError, errors.ModelRefused},
    StatusCode.ABORTED: {errors.Superseded, errors.Abandoned},
}  # fmt: skip
"""Design decision 7, written a second time on purpose."""


def family(kind: type[AdapterError]) -> Iterator[type[AdapterError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from family(child)


OF_FRONTS = ("adapter.inference", "adapter.serving")
"""Their failures leave over HTTP alone."""
KINDS = {kind for kind in family(AdapterError) if kind.__module__.startswith("adapter.") and kind.__module__ not in OF_FRONTS}
ALL = sorted(KINDS, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", ALL)
def test_each_error_has_the_code_of_its_meaning(kind: type[AdapterError]) -> None:
    """No class is forgotten, in the table or in this test."""
    known = next(parent for parent in kind.__mro__ if parent.__module__ == "adapter.errors")

    assert {codec.code_of(kind("x"))} == {code for code, kinds in BY_MEANING.items() if known in kinds}


def test_runtime_status_never_says_deadline_exceeded() -> None:
    """ModelMesh would end its process at once."""
    assert codec.code_of(BudgetExceeded("x"), "loadModel") is StatusCode.DEADLINE_EXCEEDED
    assert codec.code_of(BudgetExceeded("x"), "runtimeStatus") is StatusCode.UNAVAILABLE


def test_reasons_are_unique_labels() -> None:
    """A reason in a dashboard leads to one class."""
    reasons = codec.REASONS

    assert len(set(reasons)) == len(reasons)
    assert all(reason.isidentifier() and reason.islower() for reason in reasons)


def test_markdown_table_has_each_reason_once() -> None:
    """The README shows every failure that can be met, and says when."""
    rows = [line.strip("| ").split(" | ") for line in errors_markdown().splitlines()[2:]]

    raised = set(codec.REASONS)
    assert {reason.strip("`") for _, reason, _ in rows} == raised
    assert len(rows) == len(raised)
    assert all(when.endswith(".") for _, _, when in rows)
    assert ["`NOT_FOUND`", "`source_not_found`", "Storage has nothing at that place."] in rows
