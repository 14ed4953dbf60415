"""The commands of `deploy/docs/drop-in-image.md`, with real kubectl on a real API server."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml

from tests.chart import controller
from tests.chart.admin import upstream
from tests.chart.admin.admin import Admin
from tests.chart.admin.api import CONFIG_MAP, Object
from tests.real.children import TOP

PAGE = "drop-in-image.md"
NAME = "model-serving-config"
IMAGE = {"name": "registry.example.com/modelmesh-triton-adapter", "tag": "0.1.0"}


def config(admin: Admin) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(admin.api.get(CONFIG_MAP, admin.namespace, NAME)["data"]["config.yaml"]) or {}
    return found


def built_in_adapter(configuration: dict[str, Any]) -> Object:
    """The container that the controller makes with this ConfigMap, of the runtime as it was."""
    image = configuration["storageHelperImage"]
    helper = dataclasses.replace(controller.ControllerConfig(), storage_helper_image=f"{image['name']}:{image['tag']}")
    pod = controller.assemble(upstream.runtime(), config=helper)
    (found,) = [each for each in pod["spec"]["containers"] if each["name"] == "triton-adapter"]
    return dict(found)


@pytest.mark.parametrize("before", ["", "podsPerRuntime: 3\nrestProxy:\n  enabled: false", "podsPerRuntime: 3\n"])
def test_the_image_is_changed_and_all_else_stays(admin: Admin, before: str) -> None:
    if before:
        admin.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {"config.yaml": before}})

    admin.follow(PAGE, "Change the image")

    assert config(admin) == {**(yaml.safe_load(before) or {}), "storageHelperImage": IMAGE}
    container = built_in_adapter(config(admin))
    assert container["image"] == "registry.example.com/modelmesh-triton-adapter:0.1.0"
    (command,) = container["command"]
    assert (TOP / "deploy" / "image" / command.rpartition("/")[2]).is_file()

    admin.follow(PAGE, "The way back")

    assert config(admin) == (yaml.safe_load(before) or {})
