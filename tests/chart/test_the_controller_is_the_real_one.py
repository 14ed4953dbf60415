"""
The simulator against the controller: facts of `controllers/testdata/servingruntime_controller.golden` and of its tests.

That file holds the Deployments which the real controller made of ModelMesh Serving's own runtimes, with the
configuration `testdata/test-config-defaults.yaml`.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.chart.admin import upstream
from tests.chart.controller import ControllerConfig, assemble, validate

CONFIG = ControllerConfig(
    service_port=1234,
    model_mesh_image="image:tag",
    storage_helper_image="image:tag",
    etcd_secret="secret",
    rest_proxy=False,
    metrics=False,
    architectures=("amd64", "arm64"),
)
TRITON = upstream.runtime(protocolVersions=["grpc-v2"])
PULLERLESS: dict[str, Any] = {
    "kind": "ServingRuntime",
    "metadata": {"name": "custom-runtime-pullerless"},
    "spec": {
        "multiModel": True,
        "supportedModelFormats": [{"name": "ml-type1", "version": "1", "autoSelect": True}],
        "grpcEndpoint": "port:8001",
        "grpcDataEndpoint": "port:8001",
        "storageHelper": {"disabled": True},
        "containers": [{"name": "modelserver", "image": "mlserver", "resources": {"limits": {"memory": "1Gi"}}}],
    },
}


def adapter(name: str) -> dict[str, Any]:
    return {**TRITON["spec"]["builtInAdapter"], "serverType": name}


def changed(base: dict[str, Any], **spec: Any) -> dict[str, Any]:
    made = copy.deepcopy(base)
    made["spec"] |= spec
    return made


def with_container(**fields: Any) -> dict[str, Any]:
    return changed(PULLERLESS, containers=[{"name": "modelserver"} | fields])


def containers(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {container["name"]: container for container in template["spec"]["containers"]}


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize(
    ("rt", "config", "names"),
    [
        (TRITON, {}, ["triton-adapter", "triton", "mm"]),
        (TRITON, {"rest_proxy": True}, ["rest-proxy", "triton", "triton-adapter", "mm"]),
        (PULLERLESS, {}, ["modelserver", "mm"]),
        (changed(PULLERLESS, storageHelper={}), {"rest_proxy": True}, ["rest-proxy", "modelserver", "mm", "puller"]),
    ],
    ids=["triton", "with the REST proxy", "no storage helper", "storage helper"],
)
def test_the_order_of_containers(rt: dict[str, Any], config: dict[str, Any], names: list[str]) -> None:
    """The last row is read from the source: the golden file has no pod with a puller."""
    template = assemble(rt, config=ControllerConfig(**(CONFIG.__dict__ | config)))

    assert [container["name"] for container in template["spec"]["containers"]] == names


@pytest.mark.parametrize(
    ("rt", "names", "labels"),
    [
        (
            TRITON,
            ["models-dir", "storage-config", "tc-config", "etcd-config"],
            "mt:keras,mt:keras:2,mt:onnx,mt:onnx:1,mt:pytorch,mt:pytorch:1,mt:tensorflow,mt:tensorflow:1,mt:tensorflow:2,"
            "mt:tensorrt,mt:tensorrt:7,pv:grpc-v2,rt:triton-2.x",
        ),
        (PULLERLESS, ["models-dir", "tc-config", "etcd-config"], "mt:ml-type1,mt:ml-type1:1,rt:custom-runtime-pullerless"),
    ],
    ids=["triton", "no storage helper"],
)
def test_the_volumes_and_the_labels_of_models(rt: dict[str, Any], names: list[str], labels: str) -> None:
    template = assemble(rt, config=CONFIG)

    assert [volume["name"] for volume in template["spec"]["volumes"]] == names
    assert template["spec"]["volumes"][0]["emptyDir"] == {"sizeLimit": "1536Mi"}
    assert env(containers(template)["mm"])["MM_LABELS"] == labels


def test_the_built_in_adapter() -> None:
    made = containers(assemble(TRITON, config=CONFIG))["triton-adapter"]

    assert env(made) == {
        "ADAPTER_PORT": "8085",
        "RUNTIME_PORT": "8001",
        "RUNTIME_DATA_ENDPOINT": "port:8001",
        "CONTAINER_MEM_REQ_BYTES": {"resourceFieldRef": {"containerName": "triton", "resource": "requests.memory"}},
        "MEM_BUFFER_BYTES": "134217728",
        "LOADTIME_TIMEOUT": "90000",
        "USE_EMBEDDED_PULLER": "true",
        "RUNTIME_VERSION": "23.04-py3",
        "LOADING_CONCURRENCY": "2",
    }
    assert (made["image"], made["command"]) == ("image:tag", ["/opt/app/triton-adapter"])
    assert made["resources"] == {"limits": {"cpu": "2", "memory": "512Mi"}, "requests": {"cpu": "50m", "memory": "96Mi"}}
    assert [(mount["mountPath"], mount.get("readOnly")) for mount in made["volumeMounts"]] == [("/models", None), ("/storage-config", True)]


def test_the_storage_helper_calls_the_adapter_and_modelmesh_calls_the_storage_helper() -> None:
    template = assemble(changed(PULLERLESS, storageHelper=None), claims=("data",))

    made = containers(template)
    assert env(made["puller"]) == {
        "PORT": "8086",
        "MODEL_SERVER_ENDPOINT": "port:8001",
        "ROOT_MODEL_DIR": "/models",
        "STORAGE_CONFIG_DIR": "/storage-config",
        "PVC_MOUNTS_DIR": "/pvc_mounts",
    }
    assert env(made["mm"])["INTERNAL_GRPC_PORT"] == "8086"
    assert {"name": "data", "mountPath": "/pvc_mounts/data", "readOnly": True} in made["puller"]["volumeMounts"]
    assert {"name": "data", "mountPath": "/pvc_mounts/data", "readOnly": True} in made["modelserver"]["volumeMounts"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data"}} in template["spec"]["volumes"]


def test_the_models_volume_is_limited_by_the_memory_of_all_containers_of_the_runtime() -> None:
    own = [{"name": name, "resources": {"limits": {"memory": limit}}} for name, limit in (("a", "8Gi"), ("b", "512Mi"))]
    assert assemble(changed(PULLERLESS, containers=own))["spec"]["volumes"][0]["emptyDir"] == {"sizeLimit": "13056Mi"}
    assert assemble(with_container())["spec"]["volumes"][0]["emptyDir"] == {"sizeLimit": "0"}


@pytest.mark.parametrize(
    ("rt", "words"),
    [
        (with_container(name="puller"), "container puller: the name is reserved"),
        (with_container(name="mm-arbitrary"), "container mm-arbitrary: the name is reserved"),
        (with_container(lifecycle={}), "container modelserver: lifecycle belongs to ModelMesh"),
        (with_container(readinessProbe={}), "container modelserver: readinessProbe belongs to ModelMesh"),
        (with_container(ports=[{"name": "grpc", "containerPort": 32768}]), "container modelserver: the port name grpc is reserved"),
        (with_container(ports=[{"name": "mm-x", "containerPort": 32768}]), "container modelserver: the port name mm-x is reserved"),
        (with_container(ports=[{"containerPort": 8080}]), "container modelserver: the port 8080 is reserved"),
        (with_container(ports=[{"containerPort": 11899}]), "container modelserver: the port 11899 is reserved"),
        (with_container(volumeMounts=[{"name": "tc-config"}]), "container modelserver: the volume tc-config may not be mounted"),
        (with_container(volumeMounts=[{"name": "mm-arbitrary"}]), "container modelserver: the volume mm-arbitrary may not be mounted"),
        (changed(PULLERLESS, volumes=[{"name": "models-dir"}]), "the volume name models-dir is reserved"),
        (changed(PULLERLESS, builtInAdapter=adapter("triton")), "builtInAdapter.serverType triton needs a container of that name"),
        (
            changed(PULLERLESS, builtInAdapter=adapter("x")),
            "builtInAdapter.serverType 'x' is not one of mlserver, ovms, torchserve, triton",
        ),
    ],
)
def test_the_validator(rt: dict[str, Any], words: str) -> None:
    """The cases of the controller's own test, and volumes."""
    assert validate(rt) == [words]
