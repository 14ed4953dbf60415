"""The commands of `deploy/docs/upgrade.md`, with real Helm and kubectl on a real API server."""

from __future__ import annotations

import pytest

from tests.chart.admin import operator
from tests.chart.admin.admin import CHART, Admin
from tests.chart.admin.api import RUNTIME, Object

pytestmark = pytest.mark.long

PAGE = "upgrade.md"
NAME = "triton-2.x"
VALUES = "adapter: {image: {registry: registry.example.com}}\nloading: {concurrency: 3}\n"
INSTALL = f'helm install triton-adapter {CHART} --namespace "$NAMESPACE" --values values.yaml'


def installed(admin: Admin) -> Object:
    """With a value that is not the chart's default; the Deployment."""
    (admin.folder / "values.yaml").write_text(VALUES)
    admin.says(INSTALL)
    return operator.turn(admin.api, admin.namespace)[NAME]


def setting(admin: Admin, name: str) -> str:
    """Of the adapter's container."""
    runtime = admin.api.get(RUNTIME, admin.namespace, NAME)
    (found,) = [each["value"] for each in runtime["spec"]["containers"][1]["env"] if each["name"] == name]
    return str(found)


def image(deployment: Object, container: str) -> str:
    (found,) = [each["image"] for each in deployment["spec"]["template"]["spec"]["containers"] if each["name"] == container]
    return str(found)


def test_values_that_were_lost_come_back_from_the_release(admin: Admin) -> None:
    installed(admin)
    (admin.folder / "values.yaml").unlink()

    admin.follow(PAGE, "Upgrade", "The chart")

    assert setting(admin, "LOADING_CONCURRENCY") == "3"


def test_a_new_image_makes_new_pods_in_the_same_deployment_and_a_rollback_takes_them_back(admin: Admin) -> None:
    before = installed(admin)

    admin.follow(PAGE, "The adapter's image")

    after = operator.turn(admin.api, admin.namespace)[NAME]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert image(after, "triton-adapter") == "registry.example.com/modelmesh-triton-adapter:0.1.1"

    admin.follow(PAGE, "Back to what was")

    assert operator.turn(admin.api, admin.namespace)[NAME]["spec"]["template"] == before["spec"]["template"]


def test_a_newer_triton_is_tried_beside_the_old_one_and_takes_its_place(admin: Admin) -> None:
    installed(admin)

    admin.follow(PAGE, "Triton:0")

    both = operator.turn(admin.api, admin.namespace)
    assert {name: image(deployment, "triton").rpartition(":")[2] for name, deployment in both.items()} == {
        NAME: "25.06-py3",
        "triton-next": "25.08-py3",
    }
    formats = admin.api.get(RUNTIME, admin.namespace, "triton-next")["spec"]["supportedModelFormats"]
    assert [each for each in formats if each.get("autoSelect")] == []

    admin.follow(PAGE, "Triton:1")

    after = operator.turn(admin.api, admin.namespace)
    assert {name: image(deployment, "triton").rpartition(":")[2] for name, deployment in after.items()} == {NAME: "25.08-py3"}
