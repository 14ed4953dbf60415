"""What each front says of itself at `/openapi.json` is what it serves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from adapter.fronts import edge, sagemaker
from adapter.fronts.edge import Front
from adapter.fronts.llm import routes as llm
from adapter.fronts.v2 import routes as v2
from adapter.inference import DATATYPES
from adapter.settings import read_group
from adapter.settings.fronts import LlmSettings, SageMakerSettings

UNUSED: Any = None
FRONTS = (
    sagemaker.front(read_group(SageMakerSettings, {"SAGEMAKER_LOCAL_ENDPOINTS": "true"}), UNUSED, UNUSED, UNUSED),
    v2.front(UNUSED, UNUSED),
    llm.front(read_group(LlmSettings, {}), UNUSED, UNUSED, UNUSED),
)


def described(front: Front) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(edge.__file__).with_name(f"{front.name}.openapi.json").read_text())
    return found


@pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.name)
def test_the_description_has_the_routes_and_what_stands_in_their_paths(front: Front) -> None:
    rows = [(path, method, about) for path, methods in described(front)["paths"].items() for method, about in methods.items()]
    assert {(path, method.upper()) for path, method, _ in rows} == {(route.path, route.method) for route in front.routes}
    for path, _, about in rows:
        assert [entry["name"] for entry in about["parameters"] if entry["in"] == "path"] == re.findall(r"{(\w+)}", path)


def test_the_datatypes_are_those_that_a_request_can_have() -> None:
    infer = described(FRONTS[1])["paths"]["/v2/models/{name}/infer"]["post"]
    schema = infer["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["inputs"]["items"]["properties"]["datatype"]["enum"] == sorted(DATATYPES)
