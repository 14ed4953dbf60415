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
from adapter.settings import Settings
from adapter.settings.storage import REPOSITORY_DIR
from adapter.units import parse_bytes
from tests.chart import endpoints, pod_security, soundness
from tests.chart.controller import assemble, dropped, validate
from tests.chart.manifests import FOLDERS
from tests.chart.matrix import CLAIM
from tests.chart.runtime_env import adapter_env, containers

OURS = ("base", "gpu")
"""Folders whose runtime has the adapter's container."""


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


def test_volume_names_are_unlike_a_claim(runtime: dict[str, Any]) -> None:
    """The controller names the volume of a claim after the claim, so ours have names that no claim is likely to have."""
    names = [volume["name"] for volume in runtime["spec"]["volumes"]]

    assert [name for name in names if not name.startswith("triton-adapter-")] == []


def test_the_pod_is_sound(runtime: dict[str, Any]) -> None:
    """Nothing refused, nothing dropped without a word, no endpoint that is no port, no two servers on one port, nothing privileged."""
    assert (validate(runtime), dropped(runtime), list(endpoints.problems(runtime["spec"]))) == ([], [], [])
    assert pod_security.restricted(runtime) == []
    assert soundness.problems(soundness.PodView(assemble(runtime, claims=(CLAIM,)), {}, {})) == []


def test_capacity_is_what_triton_requests_less_the_buffer(runtime: dict[str, Any], settings: Settings) -> None:
    limits = containers(runtime)["triton"]["resources"]["limits"]
    requested = parse_bytes(containers(runtime)["triton"]["resources"]["requests"]["memory"])
    of_gpu = parse_bytes("81559Mi") if "nvidia.com/gpu" in limits else None

    assert settings.capacity.capacity_bytes == (of_gpu or requested) - settings.capacity.buffer_bytes
    assert settings.telemetry.metrics_port == containers(runtime)["triton-adapter"]["ports"][0]["containerPort"]


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


def test_the_adapter_is_started_and_probed_by_commands_that_exist(runtime: dict[str, Any]) -> None:
    adapter = containers(runtime)["triton-adapter"]

    for command in ([*adapter["command"], *adapter.get("args", ())], adapter["livenessProbe"]["exec"]["command"]):
        assert command[0] == "modelmesh-triton-adapter"
        with pytest.raises(SystemExit) as ended:
            main([*command[1:], "--help"])
        assert ended.value.code == 0


def test_triton_may_write_where_it_must(runtime: dict[str, Any]) -> None:
    """Its root file system is read-only: environments of python models are unpacked below `/tmp`."""
    mounts = {mount["mountPath"] for mount in mounts_of(containers(runtime)["triton"])}

    assert {"/tmp", "/dev/shm"} <= mounts
