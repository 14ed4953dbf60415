"""Every layout that the Go adapter's tests assert, and those that follow from its rules, its bugs and Triton's."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.errors import InvalidModel
from tests.builders import a_forest
from tests.unit.layout.cases.builders import cases, config_from, config_of, finished, named, placed, planned

PEER = cases("layouts")
OURS = cases("layouts_more")
SERVED = [case for case in PEER + OURS if "refused" not in case]
REFUSED = [case for case in PEER + OURS if "refused" in case]


def of_case(case: dict[str, Any]) -> Any:
    found = planned(
        case["type"],
        case["files"],
        single_file=case.get("single_file", False),
        config=case.get("config"),
        schema=case.get("schema"),
        allow_decoupled=case.get("allow_decoupled", False),
    )
    return finished(found, a_forest(*case["forest"])) if "forest" in case else found


@pytest.mark.parametrize("case", SERVED, ids=named)
def test_the_files_are_placed_where_triton_looks_for_them(case):
    """Exactly these files at exactly these paths, and no directory made without need."""
    found = of_case(case)

    assert placed(found) == case["placed"]
    assert list(found.directories) == case.get("directories", [])


@pytest.mark.parametrize("case", SERVED, ids=named)
def test_a_config_is_written_only_where_there_is_something_to_say(case):
    """Written with exactly the expected fields, or not at all."""
    found = of_case(case)

    if case.get("config_is") is None and case.get("config") is None:
        assert found.written == {}
    else:
        assert list(found.written) == ["config.pbtxt"]
        assert config_of(found.written["config.pbtxt"]) == config_from(case.get("config_is") or {})


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_what_triton_cannot_serve_is_refused_with_the_reason(case):
    """InvalidModel, on one line."""
    with pytest.raises(InvalidModel) as caught:
        of_case(case)

    assert case["refused"] in caught.value.text
    assert "\n" not in caught.value.text


def test_the_deliberate_differences_from_the_go_adapter_are_these():
    """A new difference must be written down here, and in the README."""
    assert [case["name"] for case in PEER if "differs" in case] == ["tensorflowGraphDefForFile", "tensorflowFilesWithConfig"]


def test_all_cases_give_the_same_again_side_by_side():
    """No case leaves anything behind for the next."""
    first = [of_case(case) for case in SERVED]

    assert [of_case(case) for case in reversed(SERVED)] == first[::-1]


def test_the_layouts_files_are_what_is_fetched():
    """Neither config nor schema nor an older version is in the pull or in the size."""
    found = planned("onnx", ["1/model.onnx", "2/model.onnx", "_schema.json", "labels.txt"], schema={})

    assert [file.path for file in found.files] == ["labels.txt", "2/model.onnx"]
    assert found.size_bytes == 2
