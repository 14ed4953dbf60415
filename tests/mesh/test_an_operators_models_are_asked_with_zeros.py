"""What the command line says of models, and what a client sends to a model that nobody here knows."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping

import pytest
from tritonclient.grpc import service_pb2 as v2

from tests.mesh.figures import FaultRow, Figures
from tests.mesh.operator import Registration, zeros
from tests.mesh.population import populate, right_is


def test_variable_dimensions_are_one_and_texts_are_empty() -> None:
    metadata = v2.ModelMetadataResponse()
    metadata.inputs.add(name="image", datatype="FP16", shape=[-1, 3, 2])
    metadata.inputs.add(name="text", datatype="BYTES", shape=[-1, 2])

    request = v2.ModelInferRequest.FromString(zeros(metadata))

    assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in request.inputs] == [
        ("image", "FP16", [1, 3, 2]), ("text", "BYTES", [1, 2]),
    ]  # fmt: skip
    assert list(request.raw_input_contents) == [bytes(12), bytes(8)]


def test_paths_are_taken_in_turn_and_may_be_numbered() -> None:
    registration = Registration(["a/{n}", "b"], "onnx")

    assert [registration.model(number).path for number in range(4)] == ["a/0", "b", "a/2", "b"]
    assert json.loads(registration.model(0).key)["storage_key"] == "s3"
    assert Registration(["a"], "onnx", "{}").model(0).key == "{}"


def test_the_same_seed_makes_the_same_models() -> None:
    def sizes(seed: int) -> list[tuple[str, int]]:
        put: dict[str, Mapping[str, bytes]] = {}
        cases = populate(20, random.Random(seed), put.__setitem__, stuck_seconds=9)
        assert [case.memory_bytes for case in cases] == [len(files["1/weights.bin"]) for files in put.values()]
        return [(case.kind, case.memory_bytes) for case in cases]

    assert sizes(1) == sizes(1) != sizes(2)
    assert {kind for kind, _ in sizes(1)} == {"good", "slow", "stuck", "broken", "too large"}


@pytest.mark.parametrize(("number", "says"), [(3.0, None), (4.0, "answered [3.0] instead of 4.0")])
def test_an_answer_is_right_by_its_number(number: float, says: str | None) -> None:
    answer = v2.ModelInferResponse(raw_output_contents=[b"\0\0\x40\x40"]).SerializeToString()

    assert right_is(number)(answer) == says


def test_the_table_has_calls_reasons_and_faults() -> None:
    figures = Figures()
    for milliseconds in range(1, 101):
        figures.took("load", milliseconds / 1000)
    figures.failed("load", "UNAVAILABLE: no answer for 12 s")
    figures.failed("load", "UNAVAILABLE: no answer for 13 s")
    figures.faults["Triton dies"] = FaultRow(times=2, tried=5, survived=4, slowest=1.5)

    table = figures.table()

    assert ["load", "100", "2", "51.0", "100.0", "100.0"] in [line.split() for line in table.splitlines()]
    assert "     2  UNAVAILABLE: no answer for N s" in table
    assert ["Triton", "dies", "2", "5", "4", "1", "1.5"] in [line.split() for line in table.splitlines()]
    assert "load 100 ok 2 failed (51.0/100.0 ms)" in figures.line(3, "idle")
