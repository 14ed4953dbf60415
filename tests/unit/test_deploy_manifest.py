"""
`deploy/servingruntime.yaml` against the rules of ModelMesh Serving's controller and against our settings.

Source of the rules: modelmesh-serving `controllers/servingruntime_validator.go`, `modelmesh/runtime.go`, `endpoint.go`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.cli import main
from adapter.settings import REPOSITORY_DIR, Settings, all_fields
from adapter.units import parse_bytes

MANIFEST = Path(__file__).parents[2] / "deploy" / "servingruntime.yaml"
RESERVED_CONTAINERS = {"mm", "rest-proxy", "puller"}
RESERVED_VOLUMES = {"storage-config", "etcd-config", "tc-config", "domain-socket", "models-dir"}
RESERVED_PORT_NAMES = {"grpc", "http", "prometheus"}
RESERVED_PORTS = {8080, 8085, 8089, 8090, *range(11881, 11900)}
PORTS_IN_USE = {8033, 8008, 8086, 2112}
POD_FIELDS = {"nodeSelector", "affinity", "tolerations", "volumes", "labels", "annotations", "imagePullSecrets", "replicas"}
RUNTIME_FIELDS = {
    "multiModel", "protocolVersions", "supportedModelFormats", "grpcEndpoint", "grpcDataEndpoint", "storageHelper", "containers",
}  # fmt: skip


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    document = yaml.safe_load(MANIFEST.read_text())
    assert (document["apiVersion"], document["kind"]) == ("serving.kserve.io/v1alpha1", "ServingRuntime")
    return document["spec"]


@pytest.fixture(scope="module")
def containers(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {container["name"]: container for container in spec["containers"]}


@pytest.fixture(scope="module")
def env(containers: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The adapter's environment as Kubernetes would fill it in."""
    values = {}
    for entry in containers["triton-adapter"]["env"]:
        if "value" in entry:
            values[entry["name"]] = entry["value"]
        else:
            reference = entry["valueFrom"]["resourceFieldRef"]
            group, resource = reference["resource"].split(".")
            values[entry["name"]] = str(parse_bytes(containers[reference["containerName"]]["resources"][group][resource]))
    return values


def test_only_fields_that_the_controller_passes_on(spec: dict[str, Any]) -> None:
    """Others (initContainers, hostIPC, terminationGracePeriodSeconds…) are refused or dropped without a word."""
    assert set(spec) <= POD_FIELDS | RUNTIME_FIELDS


def test_container_names_are_free(spec: dict[str, Any]) -> None:
    names = [container["name"] for container in spec["containers"]]

    assert len(set(names)) == len(names)
    assert not [name for name in names if name in RESERVED_CONTAINERS or name.startswith("mm-")]


def test_containers_have_no_readiness_probe_and_no_lifecycle(spec: dict[str, Any]) -> None:
    assert not [c["name"] for c in spec["containers"] if {"readinessProbe", "lifecycle"} & set(c)]


def test_volume_names_are_free_and_unlike_a_claim(spec: dict[str, Any]) -> None:
    """The controller names the volume of a PVC after the claim, so ours have names that no claim is likely to have."""
    names = [volume["name"] for volume in spec["volumes"]]

    assert not [name for name in names if name in RESERVED_VOLUMES or name.startswith("mm-")]
    assert all(name.startswith("triton-adapter-") for name in names)


def test_mounts_name_declared_volumes(spec: dict[str, Any]) -> None:
    mounted = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}

    assert mounted == {volume["name"] for volume in spec["volumes"]}


def test_ports_are_free(spec: dict[str, Any]) -> None:
    """Listening on 8085 is right, declaring it is an error."""
    ports = [port for container in spec["containers"] for port in container["ports"]]

    assert not [port for port in ports if port["name"] in RESERVED_PORT_NAMES or port["name"].startswith("mm-")]
    assert not {port["containerPort"] for port in ports} & (RESERVED_PORTS | PORTS_IN_USE)
    assert all(len(port["name"]) <= 15 for port in ports)


def test_endpoints_lead_to_the_adapter_and_to_triton(spec: dict[str, Any], env: dict[str, str]) -> None:
    """The controller does not validate them: anything but `port:N` becomes a socket path."""
    settings = Settings.from_env(env)

    assert spec["grpcEndpoint"] == f"port:{settings.spi.port}"
    assert spec["grpcDataEndpoint"] == f"port:{settings.triton.port}"


def test_every_variable_is_a_setting_and_text(containers: dict[str, dict[str, Any]]) -> None:
    """YAML makes numbers and booleans of what is not quoted; Kubernetes takes text only."""
    entries = containers["triton-adapter"]["env"]

    assert {entry["name"] for entry in entries} <= {field.metadata["env"] for field in all_fields()}
    assert all(isinstance(entry.get("value", ""), str) for entry in entries)


def test_the_settings_are_accepted(env: dict[str, str], containers: dict[str, dict[str, Any]]) -> None:
    """The capacity is what Triton's container requests, less the buffer."""
    settings = Settings.from_env(env)

    requested = parse_bytes(containers["triton"]["resources"]["requests"]["memory"])
    assert settings.capacity.capacity_bytes == requested - settings.capacity.buffer_bytes
    assert settings.telemetry.metrics_port == containers["triton-adapter"]["ports"][0]["containerPort"]


def test_both_see_the_models_at_one_path(env: dict[str, str], containers: dict[str, dict[str, Any]]) -> None:
    """Triton canonicalises links: another path in its container is another file."""
    mounts = {name: {m["mountPath"]: m["name"] for m in container["volumeMounts"]} for name, container in containers.items()}
    root = env["ROOT_MODEL_DIR"]

    assert mounts["triton"][root] == mounts["triton-adapter"][root]


def test_triton_is_started_as_the_adapter_needs_it(
    spec: dict[str, Any], containers: dict[str, dict[str, Any]], env: dict[str, str]
) -> None:
    command = containers["triton"]["args"][0]
    repository = f"{env['ROOT_MODEL_DIR']}/{REPOSITORY_DIR}"
    threads = re.search(r"--model-load-thread-count=(\d+)", command)

    assert command.index(f"mkdir -p {repository};") < command.index(f"chmod 777 {repository}") < command.index("exec tritonserver")
    assert f"--model-repository={repository} " in command
    assert "--model-control-mode=explicit " in command
    assert "--strict-readiness=false " in command
    assert "--backend-config=dali,release_after_unload=true " in command, "DALI would keep the memory of unloaded models"
    assert f"--grpc-port={spec['grpcDataEndpoint'].removeprefix('port:')} " in command
    assert threads and threads[1] == env["TRITON_LOAD_THREADS"]
    assert int(threads[1]) > int(env["LOADING_CONCURRENCY"])


def test_tritons_probe_asks_the_adapter_where_it_listens(containers: dict[str, dict[str, Any]], env: dict[str, str]) -> None:
    """Then Triton itself; both have time within the probe's own."""
    probe = containers["triton"]["livenessProbe"]
    script = probe["exec"]["command"][-1]

    assert re.findall(r"http://[^\s)]+", script) == [
        f"http://127.0.0.1:{Settings.from_env(env).telemetry.metrics_port}/healthz/triton",
        "http://127.0.0.1:8000/v2/health/live",
    ]
    assert sum(int(seconds) for seconds in re.findall(r"--max-time (\d+)", script)) < probe["timeoutSeconds"]
    assert probe["timeoutSeconds"] < probe["periodSeconds"]


def test_the_cache_stays_below_the_limit_of_its_volume(env: dict[str, str], spec: dict[str, Any], containers: dict[str, Any]) -> None:
    """A pod that writes more is evicted, and statvfs shows the node's disk."""
    mount = next(m for m in containers["triton-adapter"]["volumeMounts"] if m["mountPath"] == env["ROOT_MODEL_DIR"])
    volume = next(volume for volume in spec["volumes"] if volume["name"] == mount["name"])

    assert parse_bytes(env["CACHE_MAX_BYTES"]) == parse_bytes(volume["emptyDir"]["sizeLimit"]) * 9 // 10


def test_the_storage_secret_is_mounted_by_us_and_optional(env: dict[str, str], spec: dict[str, Any], containers: dict[str, Any]) -> None:
    """Without the storage helper the controller mounts none; pods start without the secret."""
    volume = next(volume for volume in spec["volumes"] if "secret" in volume)
    mount = next(m for m in containers["triton-adapter"]["volumeMounts"] if m["name"] == volume["name"])

    assert spec["storageHelper"] == {"disabled": True}
    assert volume["secret"]["optional"] is True
    assert mount == {"name": volume["name"], "mountPath": str(Settings.from_env(env).pull.config_dir), "readOnly": True}


def test_the_grace_periods_fit_into_the_pods(env: dict[str, str], containers: dict[str, dict[str, Any]]) -> None:
    """The controller fixes the pod's at 90 s."""
    exit_timeout = re.search(r"--exit-timeout-secs=(\d+)", containers["triton"]["args"][0])

    assert exit_timeout and int(exit_timeout[1]) < 90
    assert Settings.from_env(env).lifetime.grace_seconds < 90


def test_the_adapter_is_started_and_probed_by_commands_that_exist(containers: dict[str, dict[str, Any]]) -> None:
    adapter = containers["triton-adapter"]

    for command in (adapter["command"], adapter["livenessProbe"]["exec"]["command"]):
        assert command[0] == "modelmesh-triton-adapter"
        with pytest.raises(SystemExit) as ended:
            main([*command[1:], "--help"])
        assert ended.value.code == 0


def test_the_adapter_runs_without_privileges(containers: dict[str, dict[str, Any]]) -> None:
    context = containers["triton-adapter"]["securityContext"]

    assert context["runAsNonRoot"] and context["runAsUser"] > 0 and context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
