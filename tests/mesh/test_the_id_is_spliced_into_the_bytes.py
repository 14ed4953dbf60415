"""Injection on the wire, held against protobuf's own reading of the bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tritonclient.grpc import service_pb2 as v2

from tests.mesh.wire import inject

texts = some.text(max_size=40)
names = some.text(min_size=1, max_size=200)


@given(
    name=some.none() | texts,
    wanted=names,
    version=texts,
    request_id=texts,
    raw=some.lists(some.binary(max_size=200), max_size=3),
    priority=some.integers(0, 2**63),
)
def test_only_the_name_changes(name: str | None, wanted: str, version: str, request_id: str, raw: list[bytes], priority: int) -> None:
    request = v2.ModelInferRequest(model_version=version, id=request_id, raw_input_contents=raw)
    request.parameters["priority"].uint64_param = priority
    if name is not None:
        request.model_name = name

    spliced = v2.ModelInferRequest.FromString(inject(request.SerializeToString(), wanted))

    request.model_name = wanted
    assert spliced == request


@given(wanted=names)
def test_a_name_that_is_absent_is_appended(wanted: str) -> None:
    message = v2.ModelInferRequest(id="7").SerializeToString()

    assert inject(message, wanted).startswith(message)
    assert v2.ModelInferRequest.FromString(inject(message, wanted)).model_name == wanted


def test_only_the_first_of_two_names_is_replaced() -> None:
    """A client that sends the field twice reaches another model: ModelMesh has this defect, so the simulator has it."""
    twice = v2.ModelInferRequest(model_name="a").SerializeToString() + v2.ModelInferRequest(model_name="b").SerializeToString()

    assert v2.ModelInferRequest.FromString(inject(twice, "wanted")).model_name == "b"
    assert inject(twice, "wanted") == b"\x0a\x06wanted\x0a\x01b"


def test_a_path_leads_into_messages_within_the_message() -> None:
    request = v2.ModelInferRequest(model_name="m")
    request.inputs.add(name="old", datatype="FP32", shape=[1])

    spliced = v2.ModelInferRequest.FromString(inject(request.SerializeToString(), "new", (5, 1)))

    request.inputs[0].name = "new"
    assert spliced == request


@given(some.binary(max_size=60))
def test_bytes_that_are_no_message_are_refused_or_stay_readable(message: bytes) -> None:
    """Nothing else can come out: no endless loop, no other exception."""
    try:
        spliced = inject(message, "m")
    except ValueError:
        return
    assert b"\x0a\x01m" in spliced


@pytest.mark.parametrize("message", [b"\x08\x01", b"\x0a\x05ab", b"\x12", b"\x13\x00", b"\xff" * 11])
def test_a_damaged_message_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"field 1|cut off|wire type"):
        inject(message, "m")
