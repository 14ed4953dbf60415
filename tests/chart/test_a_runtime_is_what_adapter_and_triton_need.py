"""
The runtimes of the plain manifests against the adapter's own settings and commands, and against what Triton must be told.

The controller's rules are those of the simulator and of the CRD; here is what neither knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from adapter.cli import main
from adapter.settings import REPOSITORY_DIR, Settings, all_fields
from adapter.units import parse_bytes
from tests.chart import endpoints
from tests.chart.controller import GRACE_SECONDS, assemble, dropped, validate
from tests.chart.manifests import FOLDERS
from tests.chart.render import RenderError
from tests.chart.runtime_env import adapter_env, containers, volume_bytes
from tests.chart.soundness import LONGEST_PORT_NAME

OURS = ("base", "cluster", "gpu", "storage-helper")
"""Folders whose runtime has the adapter's container."""
TRITON_HTTP_PORT = 8000
MODELMESH_UNDECLARED = (8080, 8089, 8090)
"""Between ModelMeshes, for probes and for `preStop`."""


@pytest.fixture(scope="module", params=OURS)
def runtime(request: pytest.FixtureRequest) -> dict[str, Any]:
    (folder,) = (each for each in FOLDERS if each.name == request.param)
    return next(each for each in folder.resources() if each["kind"].endswith("ServingRuntime"))


@pytest.fixture(scope="module")
def env(runtime: dict[str, Any]) -> dict[str, str]:
    return adapter_env(runtime)


@pytest.fixture(scope="module")
def settings(env: dict[str, str]) -> Settings:
    return Settings.from_env(env)


def words(container: Mapping[str, Any]) -> str:
    """Command and arguments, in one line."""
    return re.sub(r"\s+", " ", " ".join([*container.get("command", ()), *container.get("args", ())])) + " "


def mounts_of(container: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = container.get("volumeMounts", [])
    return found


def is_pulling(runtime: dict[str, Any]) -> bool:
    return bool(runtime["spec"].get("storageHelper", {}).get("disabled"))


def test_volume_names_are_unlike_a_claim(runtime: dict[str, Any]) -> None:
    """The controller names the volume of a claim after the claim, so ours have names that no claim is likely to have."""
    names = [volume["name"] for volume in runtime["spec"]["volumes"]]

    assert [name for name in names if not name.startswith("triton-adapter-")] == []


def test_mounts_name_declared_volumes_and_every_volume_is_mounted(runtime: dict[str, Any]) -> None:
    mounted = {mount["name"] for each in containers(runtime).values() for mount in mounts_of(each)}

    assert mounted == {volume["name"] for volume in runtime["spec"]["volumes"]}


def test_the_controller_takes_the_runtime_as_it_is(runtime: dict[str, Any]) -> None:
    """Nothing refused, nothing dropped without a word, no endpoint that is no port."""
    assert (validate(runtime), dropped(runtime), endpoints.problems(runtime["spec"])) == ([], [], [])


def test_no_port_of_the_pod_is_taken_twice(runtime: dict[str, Any], settings: Settings) -> None:
    """Ports that are listened on without a declaration count, too: one network for all containers."""
    declared = [port["containerPort"] for each in assemble(runtime)["spec"]["containers"] for port in each.get("ports", ())]
    ports = [*declared, settings.spi.port, settings.triton.port, TRITON_HTTP_PORT, *MODELMESH_UNDECLARED]

    assert sorted(set(ports)) == sorted(ports)


def test_port_names_are_short_enough(runtime: dict[str, Any]) -> None:
    names = [port["name"] for each in containers(runtime).values() for port in each["ports"]]

    assert sorted(names) == ["adapter-metrics", "triton-metrics"]
    assert all(len(name) <= LONGEST_PORT_NAME for name in names)


def test_endpoints_lead_to_the_adapter_and_to_triton(runtime: dict[str, Any], settings: Settings) -> None:
    """The controller does not look at them: anything but `port:N` becomes a socket's path."""
    assert runtime["spec"]["grpcEndpoint"] == f"port:{settings.spi.port}"
    assert runtime["spec"]["grpcDataEndpoint"] == f"port:{settings.triton.port}"


def test_every_variable_is_a_setting_and_text(runtime: dict[str, Any]) -> None:
    """YAML makes numbers and booleans of what is not quoted; Kubernetes takes text only."""
    entries = containers(runtime)["triton-adapter"]["env"]

    assert {entry["name"] for entry in entries} <= {field.metadata["env"] for field in all_fields()}
    assert all(isinstance(entry.get("value", ""), str) for entry in entries)
    assert len({entry["name"] for entry in entries}) == len(entries)


def test_capacity_is_what_triton_requests_less_the_buffer(runtime: dict[str, Any], settings: Settings) -> None:
    limits = containers(runtime)["triton"]["resources"]["limits"]
    requested = parse_bytes(containers(runtime)["triton"]["resources"]["requests"]["memory"])
    of_gpu = parse_bytes("81559Mi") if "nvidia.com/gpu" in limits else None

    assert settings.capacity.capacity_bytes == (of_gpu or requested) - settings.capacity.buffer_bytes
    assert settings.telemetry.metrics_port == containers(runtime)["triton-adapter"]["ports"][0]["containerPort"]


def test_both_see_the_models_at_one_path(runtime: dict[str, Any], settings: Settings) -> None:
    """Triton canonicalises links: another path in its container is another file. With the storage helper the controller mounts it."""
    root = str(settings.volume.root)
    mounts = [{mount["mountPath"]: mount["name"] for mount in mounts_of(each)} for each in containers(runtime).values()]

    if is_pulling(runtime):
        assert mounts[0][root] == mounts[1][root]
    else:
        assert root == "/models"
        assert all(root not in each for each in mounts)


def test_triton_is_started_as_the_adapter_needs_it(runtime: dict[str, Any], settings: Settings) -> None:
    command = words(containers(runtime)["triton"])
    repository = settings.volume.root / REPOSITORY_DIR
    threads = re.search(r"--model-load-thread-count=(\d+) ", command)

    assert command.index(f"mkdir -p {repository}") < command.index(f"chmod 777 {repository}") < command.index("exec tritonserver")
    assert f"--model-repository={repository} " in command
    assert "--model-control-mode=explicit " in command
    assert "--strict-readiness=false " in command
    assert "--backend-config=dali,release_after_unload=true " in command, "DALI would keep the memory of unloaded models"
    assert f"--grpc-port={settings.triton.port} " in command
    assert "--grpc-address=127.0.0.1 " in command
    assert "--http-address=127.0.0.1 " in command
    assert threads and int(threads[1]) == settings.triton.load_threads > settings.capacity.max_loading


def test_tritons_probe_asks_the_adapter_where_it_listens(runtime: dict[str, Any], settings: Settings) -> None:
    """Then Triton itself; both have time within the probe's own."""
    probe = containers(runtime)["triton"]["livenessProbe"]
    script = probe["exec"]["command"][-1]

    assert re.findall(r"http://[^\s)]+", script) == [
        f"http://127.0.0.1:{settings.telemetry.metrics_port}/healthz/triton",
        "http://127.0.0.1:8000/v2/health/live",
    ]
    assert sum(int(seconds) for seconds in re.findall(r"--max-time (\d+)", script)) < probe["timeoutSeconds"]
    assert probe["timeoutSeconds"] < probe["periodSeconds"]


def test_the_cache_stays_below_the_limit_of_its_volume(runtime: dict[str, Any], settings: Settings) -> None:
    """A pod that writes more is evicted, and statvfs shows the node's disk. What the storage helper pulls is no cache of ours."""
    limit = volume_bytes(runtime, str(settings.volume.root)) if is_pulling(runtime) else 0

    assert settings.volume.max_bytes == limit * 9 // 10


def test_the_storage_secret_is_mounted_by_us_and_optional(runtime: dict[str, Any], settings: Settings) -> None:
    """Without the storage helper the controller mounts none; pods start without the secret."""
    volumes = {volume["name"]: volume["secret"] for volume in runtime["spec"]["volumes"] if "secret" in volume}
    mounts = {name: [mount for mount in mounts_of(each) if mount["name"] in volumes] for name, each in containers(runtime).items()}

    assert mounts["triton"] == []
    assert len(mounts["triton-adapter"]) == is_pulling(runtime)
    for mount in mounts["triton-adapter"]:
        assert volumes[mount["name"]] == {"secretName": "storage-config", "optional": True}
        assert (mount["mountPath"], mount["readOnly"]) == (str(settings.pull.config_dir), True)


def test_the_grace_periods_fit_into_the_pods(runtime: dict[str, Any], settings: Settings) -> None:
    exit_timeout = re.search(r"--exit-timeout-secs=(\d+) ", words(containers(runtime)["triton"]))

    assert exit_timeout and int(exit_timeout[1]) < GRACE_SECONDS
    assert settings.lifetime.grace_seconds < GRACE_SECONDS


def test_the_adapter_is_started_and_probed_by_commands_that_exist(runtime: dict[str, Any]) -> None:
    adapter = containers(runtime)["triton-adapter"]

    for command in ([*adapter["command"], *adapter.get("args", ())], adapter["livenessProbe"]["exec"]["command"]):
        assert command[0] == "modelmesh-triton-adapter"
        with pytest.raises(SystemExit) as ended:
            main([*command[1:], "--help"])
        assert ended.value.code == 0


def test_both_run_without_privileges_and_as_one_user(runtime: dict[str, Any]) -> None:
    contexts = [each["securityContext"] for each in containers(runtime).values()]

    for context in contexts:
        assert context["runAsNonRoot"] and context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert len({context["runAsUser"] for context in contexts}) == 1
    assert contexts[0]["runAsUser"] > 0


def test_triton_may_write_where_it_must(runtime: dict[str, Any]) -> None:
    """Its root file system is read-only: environments of python models are unpacked below `/tmp`."""
    mounts = {mount["mountPath"] for mount in mounts_of(containers(runtime)["triton"])}

    assert {"/tmp", "/dev/shm"} <= mounts


def test_a_wrong_value_is_refused_at_the_render() -> None:
    """Else these tests would say nothing of a chart that takes anything."""
    folder = type(FOLDERS[0])(name="wrong", values={"runtime.mod": "adapterPull"})

    with pytest.raises(RenderError, match="mod"):
        folder.resources()
