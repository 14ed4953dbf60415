"""
Values files whose sentence says more than their committed render shows: what adapter, Triton and selectors make of it.

A function for each such file, of its name. The others are proven by `test_renders_are_the_committed_ones.py`.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml

from adapter.settings.fronts import LlmSettings
from tests.chart import matrix
from tests.chart.matrix import case
from tests.chart.pod.env import words
from tests.chart.soundness import ADAPTER, TRITON

GIB = 1 << 30


@pytest.mark.parametrize("found", matrix.values(), ids=lambda found: found.name)
def test_each_file_says_what_it_proves(found: matrix.Case) -> None:
    assert found.path.read_text().startswith("# proves: ")


def formats(name: str) -> list[str]:
    found = case(name).runtime()["spec"]["supportedModelFormats"]
    return [f"{model['name']}:{model['version']}{'' if model['autoSelect'] else ' by name'}" for model in found]


def env(name: str, container: str = ADAPTER) -> dict[str, str]:
    return case(name).pod().env(container)


def volume(name: str, container: str, path: str) -> dict[str, Any]:
    pod = case(name).pod()
    place = pod.place(container, path)
    assert place is not None
    return dict(pod.volume(place[0]))


def test_built_in_adapter() -> None:
    pod = case("built-in-adapter").pod()
    assert [container["name"] for container in case("built-in-adapter").runtime()["spec"]["containers"]] == [TRITON]
    assert pod.containers[ADAPTER]["command"] == ["/opt/app/triton-adapter"]
    capacity = pod.settings.capacity
    assert (capacity.buffer_bytes, capacity.max_concurrency, capacity.max_loading, capacity.load_timeout_ms) == (GIB // 2, 4, 3, 120_000)


def test_fronts() -> None:
    pod, wanted = case("fronts").pod(), {"sagemaker": 18081, "v2": 18082, "lmi": 18083}
    settings = pod.settings
    assert (settings.sagemaker.port, settings.v2.port, settings.llm.port) == tuple(wanted.values())
    assert str(settings.v2.endpoint) == "localhost:8033"
    assert settings.llm == LlmSettings(
        port=18083, model="chat", is_tgi_compatible=True, output_formatter="sse", is_streaming=True, rolling_batch="disable"
    )
    _, fronts = case("fronts").of_kind("Service")
    assert {port["name"]: port["targetPort"] for port in fronts["spec"]["ports"]} == wanted
    (policy,) = case("fronts").of_kind("NetworkPolicy")
    (opened,) = (rule for rule in policy["spec"]["ingress"] if {"protocol": "TCP", "port": 18081} in rule["ports"])
    assert {port["port"] for port in opened["ports"]} == set(wanted.values())
    assert {pod.place(name, "/opt/ml/models/x/model") for name in (TRITON, ADAPTER)} == {("sagemaker-files", "x/model")}


def test_built_in_adapter_front() -> None:
    pod = case("built-in-adapter-front").pod()
    assert (pod.settings.v2.port, pod.settings.v2.endpoint, pod.settings.sagemaker.port, pod.settings.llm.port) == (8082, None, 0, 0)
    assert [port["targetPort"] for port in case("built-in-adapter-front").of_kind("Service")[1]["spec"]["ports"]] == [8082]


def test_fixed_capacity() -> None:
    capacity = case("fixed-capacity").pod().settings.capacity
    assert (capacity.container_memory_bytes, capacity.multiplier, capacity.default_model_bytes) == (20 * GIB, 1.5, 50 << 20)


def test_created_secret() -> None:
    (secret,) = case("created-secret").of_kind("Secret")
    assert volume("created-secret", ADAPTER, "/storage-config")["secret"]["secretName"] == secret["metadata"]["name"] == "model-storage"
    entries = {key: json.loads(base64.b64decode(text)) for key, text in secret["data"].items()}
    assert entries["s3"]["secret_access_key"] == "p\"a$s's\\ {{ word }}"
    assert entries["web"]["headers.Authorization"] == "Bearer x"
    assert entries["claim"] == {"type": "pvc", "name": matrix.CLAIM}


def test_restricted_protocols() -> None:
    pod = case("restricted-protocols").pod()
    key, value = pod.settings.triton.restricted_key, matrix.SECRET["value"]
    assert pod.env(ADAPTER)["TRITON_RESTRICTED_VALUE"] == pod.env(TRITON)["TRITON_CONTROL"] == value
    script = " ".join(words(pod.containers[TRITON], pod.env(TRITON)))
    for option in ("--grpc-restricted-protocol", "--http-restricted-api"):
        assert f'{option}=model-repository,shared-memory,trace,logging:{key}="$TRITON_CONTROL"' in script
    assert value not in json.dumps(case("restricted-protocols").objects())


def test_everything() -> None:
    pod = case("everything").pod()
    assert words(pod.containers[TRITON], {})[-2:] == ["--log-verbose=1", "--cache-config=local,size=1048576"]
    assert pod.env(TRITON)["value"] == matrix.SECRET["value"]
    assert formats("everything") == ["onnx:1", "python:1", "pytorch:1 by name", "pytorch:2 by name", "tensorrt:7"]
    assert (pod.settings.pull.unpack_max_bytes, pod.settings.pull.denied_networks) == (128 * GIB, ())
    assert (pod.settings.telemetry.log_level, pod.env(ADAPTER)["HTTPS_PROXY"]) == ("debug", "http://proxy.example.com:3128")
    assert (pod.place(TRITON, "/licence/key"), pod.place(ADAPTER, "/etc/ca/ca.crt")) == (("licence", "key"), ("ca", "ca.crt"))


def test_removed_defaults() -> None:
    found = case("removed-defaults")
    pod = found.pod()
    assert ": null" not in json.dumps([each for each in found.objects() if each["kind"] != "ConfigMap"])
    assert pod.containers[TRITON]["resources"] == {"limits": {"memory": "8Gi"}}
    assert pod.containers[TRITON]["securityContext"] == {"capabilities": {"drop": ["ALL"]}}, "the controller's own"
    assert pod.containers[ADAPTER]["resources"]["limits"] == {"memory": "512Mi"}
    assert formats("removed-defaults") == ["onnx:1", "python:1", "pytorch:1"]


def test_odd_texts() -> None:
    found = case("odd-texts")
    given = yaml.safe_load(found.path.read_text())
    pod = found.pod()
    assert words(pod.containers[TRITON], {})[-2:] == given["triton"]["extraArgs"]
    assert pod.env(TRITON)["ODD"] == given["triton"]["extraEnv"][0]["value"]
    assert found.runtime()["metadata"]["annotations"] == given["runtime"]["annotations"]
    assert pod.template["metadata"]["annotations"].items() > given["runtime"]["podAnnotations"].items()
    assert all(each["metadata"]["labels"].items() > given["commonLabels"].items() for each in found.objects())
    assert pod.settings.capacity.capacity_bytes == 3 * GIB // 2
