"""Each sample's placement label against what the chart's runtime offers: with default values, or with those that the sample asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.chart.predictors import predictor_of
from tests.chart.render import render, the_runtime
from tests.chart.samples import SAMPLES, documents

DOCUMENTS = documents()
OLD_TRITON = "25.02-py3"


def labels(runtime: Mapping[str, Any]) -> set[str]:
    """What ModelMesh places by. Source: modelmesh-serving `controllers/modelmesh/model_type_labels.go`."""
    formats = [each for each in runtime["spec"]["supportedModelFormats"] if each.get("autoSelect")]
    types = {f"mt:{each['name']}" for each in formats}
    return types | {f"mt:{each['name']}:{each['version']}" for each in formats} | {f"rt:{runtime['metadata']['name']}"}


def asked_values(name: str) -> dict[str, object]:
    """Values that the sample's comment asks for."""
    comment = (SAMPLES / name.partition(":")[0]).read_text().splitlines()[0]
    found: dict[str, object] = dict.fromkeys(re.findall(r"`(formats\.\w+\.enabled): true`", comment), True)
    return found | {"triton.image.tag": OLD_TRITON} if found else {}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_runtime_takes_the_sample(name: str) -> None:
    runtime = the_runtime(render(sets=asked_values(name)))

    assert predictor_of(DOCUMENTS[name]).label in labels(runtime)


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if asked_values(name)])
def test_a_sample_that_asks_for_values_needs_them(name: str) -> None:
    assert predictor_of(DOCUMENTS[name]).label not in labels(the_runtime(render()))


def test_each_format_of_the_chart_has_a_sample() -> None:
    everything = {f"formats.{name}.enabled": True for name in ("tensorflow", "keras", "sklearn", "xgboost", "lightgbm")}
    runtime = the_runtime(render(sets={**everything, "triton.image.tag": OLD_TRITON}))

    formats = {each["name"] for each in runtime["spec"]["supportedModelFormats"]}

    assert formats <= {predictor_of(resource).format["name"] for resource in DOCUMENTS.values()}
