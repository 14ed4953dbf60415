"""Values, schema, templates and documents of the chart say the same."""

from __future__ import annotations

import configparser
import json
import math
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart import install, matrix, render
from tests.chart.pod.env import quantity
from tests.chart.render import CHART
from tests.real.children import TOP

NOTES_COLUMNS = 100
OF_PARENT_CHARTS = {"global"}

BASE: dict[str, Any] = {
    "podMonitor.enabled": True,
    "prometheusRule.enabled": True,
    "dashboard.enabled": True,
    "fronts.v2.port": 8082,
    "triton.image.tag": "25.02-py3",
    "extraVolumes": [{"name": "extra", "emptyDir": {}}],
    "storage.entries": {"s3": {"type": "s3"}},
}
"""All objects are there, and something can be mounted."""
MAY_BE_AWAY = {"labels", "securityContext"}
"""What a template can do without, though its default says something."""


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return found


def closed(schema: Mapping[str, Any], values: Any, place: str = "") -> Iterator[str]:
    """What differs between the objects of the schema and the values; free maps and lists are left to the schema."""
    properties = schema.get("properties")
    if properties is None or not values or not isinstance(values, dict):
        return
    if schema.get("additionalProperties") is not False:
        yield f"{place or 'the top'} is open"
    known = {key for key, found in properties.items() if "const" not in found} - OF_PARENT_CHARTS
    yield from (f"{place}{key} is in one of both" for key in set(values) ^ known)
    for key in set(values) & set(properties):
        yield from closed(properties[key], values[key], f"{place}{key}.")


def test_the_schema_knows_the_values_and_no_others(values: dict[str, Any], schema: dict[str, Any]) -> None:
    assert list(closed(schema, values)) == []


def test_helm_finds_nothing_to_say_against_the_chart() -> None:
    words = [str(install.helm()), "lint", "--strict", str(CHART)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("[") and "icon is recommended" not in line] == []


def test_the_chart_is_of_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    package = configparser.ConfigParser()
    package.read(TOP / "setup.cfg")

    assert chart["appVersion"] == package["metadata"]["version"]
    assert chart["annotations"]["artifacthub.io/license"] == package["metadata"]["license"]


def test_the_images_that_are_announced_are_those_of_the_default_values() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    announced = {each["image"] for each in yaml.safe_load(chart["annotations"]["artifacthub.io/images"])}

    assert announced == {each["image"] for each in render.the_runtime(render.render())["spec"]["containers"]}
    assert "http" not in json.dumps(chart), "the project has no public address"


@pytest.mark.parametrize("size", ["60Gi", "1.5Ti", "100G", "0.5Gi", "123456789", "7777777k", "1.1Mi"])
def test_the_cache_is_nine_tenths_of_the_volume_to_the_byte(size: str) -> None:
    container = render.the_runtime(render.render(sets={"modelVolume.size": size}))["spec"]["containers"][1]

    found = next(each["value"] for each in container["env"] if each["name"] == "CACHE_MAX_BYTES")

    assert int(found) == math.ceil(quantity(size)) * 9 // 10, "a broken byte counts as one, as in Kubernetes"


@pytest.mark.parametrize("case", matrix.values(), ids=lambda case: case.name)
def test_the_notes_fit_a_terminal(case: matrix.Case) -> None:
    text = render.notes(case.path)

    assert [line for line in text.splitlines() if len(line) > NOTES_COLUMNS or line != line.rstrip()] == []


def test_the_notes_do_the_arithmetic_and_name_keys_of_the_secret_alone() -> None:
    entries = {"minio": {"type": "hidden-type", "access_key_id": "hidden-id"}}
    text = render.notes(sets={"storage.entries": entries, "capacity.buffer": "512Mi"})

    assert "7680 MiB in each pod: Triton's requests.memory less a buffer of 512Mi" in text
    assert "with the keys minio\n" in text
    assert "hidden" not in text
    assert "access_key_id" not in text


def test_words_that_yaml_takes_for_numbers_and_truths_stay_words() -> None:
    openvino = {"enabled": True, "versions": ["1"], "autoSelect": False}
    words = {**BASE, "fullnameOverride": "null", "formats": {"on": openvino}, "networkPolicy.from": [{"podSelector": {}}]}
    words |= {"storage.secretName": "1e3", "triton.restrictedProtocols": {"existingSecret": "0x1"}}
    words |= {"triton.extraEnv": [{"name": "Y", "value": "y"}], "controller.inferenceServiceName": "1"}

    objects = render.render(sets=words, namespace="2024", release="7")

    assert len(objects) == 12
    names = [text for each in objects for text in (each["metadata"]["name"], each["metadata"]["namespace"])]
    labels = [text for each in objects for text in each["metadata"]["labels"].values()]
    runtime = render.the_runtime(objects)["spec"]
    assert {type(each) for each in names + labels} == {str}
    assert "on" in [each["name"] for each in runtime["supportedModelFormats"]]
    assert {"name": "Y", "value": "y"} in runtime["containers"][0]["env"]
    sources = [each.get("valueFrom", {}) for container in runtime["containers"] for each in container["env"]]
    assert {each["secretKeyRef"]["name"] for each in sources if "secretKeyRef" in each} == {"0x1"}
    (policy,) = render.of_kind(objects, "NetworkPolicy")
    assert policy["spec"]["ingress"][1]["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "7"
    assert policy["spec"]["podSelector"]["matchLabels"] == {"modelmesh-service": "1", "name": "1-triton-2.x"}


def missing(schema: Mapping[str, Any], values: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Values that an admin may take away with null, though a template needs them."""
    if "properties" not in schema:
        return
    needed = {key for key, value in values.items() if value and key not in MAY_BE_AWAY}
    yield from (f"{place}{key}" for key in sorted(needed - set(schema.get("required", ()))))
    for key, value in values.items():
        if isinstance(value, dict):
            yield from missing(schema["properties"][key], value, f"{place}{key}.")


def test_a_default_that_says_something_cannot_be_taken_away(values: dict[str, Any], schema: dict[str, Any]) -> None:
    """By null, or by `--reuse-values` from a chart that did not have the value: else a pod with port 0, or a nil pointer."""
    assert list(missing(schema, values)) == []


def test_as_part_of_another_chart_an_empty_key_is_a_default(tmp_path: Path) -> None:
    """Helm leaves the nulls of a parent's values in other places than those of its own."""
    shutil.copytree(CHART, tmp_path / "charts" / "inner")
    wanted = [{"name": "modelmesh-triton-adapter", "version": "0.1.0", "alias": "serving"}]
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "outer", "version": "1.0.0", "dependencies": wanted}))
    inner = {"triton": {"securityContext": {"runAsUser": None}}, "runtime": {"affinity": None, "annotations": None}, "commonLabels": None}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"global": {"any": "thing"}, "serving": inner}))

    words = [str(install.helm()), "template", "outer", str(tmp_path)]
    made = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout

    runtime = render.the_runtime([each for each in yaml.safe_load_all(made) if each])
    assert "runAsUser" not in runtime["spec"]["containers"][0]["securityContext"]
    assert runtime["metadata"]["labels"]["app.kubernetes.io/name"] == "serving"
