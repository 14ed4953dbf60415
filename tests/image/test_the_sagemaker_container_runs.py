"""
compose.sagemaker.yaml: read by the reference loader, and its one container started here without an image.

The environment is that of the file over that of deploy/sagemaker.Dockerfile; Triton is the adapter's child, as in the image.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.image.compose import FOLDER, services_of
from tests.image.dockerfile import SAGEMAKER, stages
from tests.real import install, parts
from tests.real.children import TOP, Child, bare_environment
from tests.real.polls import until
from tests.real.ports import free_ports

pytestmark = pytest.mark.timeout(300)  # what all tests share counts in the first one
FILE = "compose.sagemaker.yaml"
PORTS = ("8001", "8002", "8080", "9464")


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    return dict(services_of(FILE)["sagemaker"])


@pytest.fixture(scope="module")
def ports() -> dict[str, str]:
    return dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))


@pytest.fixture
def container(service: dict[str, Any], ports: dict[str, str], tmp_path: Path) -> Iterator[Child]:
    """Until it is healthy by the image's own probe."""
    parts.or_skip(install.install)
    final = stages(SAGEMAKER.read_text())[1][-1]
    settings = final.pairs("ENV") | service["environment"]
    command = re.sub("|".join(PORTS), lambda match: ports[match[0]], settings["TRITON_COMMAND"])
    command = command.replace("tritonserver", str(install.server()), 1).replace("=/models/", f"={tmp_path}/")
    command += f" --backend-directory={install.BACKENDS} --id=container"
    moved = {
        "TRITON_COMMAND": command,
        "ROOT_MODEL_DIR": str(tmp_path),
        "RUNTIME_PORT": ports["8001"],
        "METRICS_PORT": ports["9464"],
        "SAGEMAKER_BIND_TO_PORT": ports["8080"],
        "SAGEMAKER_MODEL_ROOTS": str(FOLDER / "buckets" / "models"),
    }
    env = bare_environment() | install.environment() | {"PYTHONPATH": str(TOP)} | settings | moved
    program, *words = json.loads(final.all("HEALTHCHECK")[-1].value.removeprefix("CMD "))
    assert [*final.last("ENTRYPOINT"), program] == ["modelmesh-triton-adapter"] * 2
    start = [sys.executable, "-m", "adapter"]
    child = Child("container", [*start, *final.last("CMD")], env=env)
    try:
        probe = [*start, *words]
        child.wait_until(lambda: subprocess.run(probe, env=env, capture_output=True, check=False).returncode == 0, "healthy", 30)
        yield child
    finally:
        child.kill()


def test_the_commands_of_the_readme_load_ask_and_unload(container: Child, ports: dict[str, str]) -> None:
    readme = (FOLDER / "README.md").read_text()
    (section,) = re.findall(r"^## SageMaker's contract$(.*?)^## ", readme, re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^curl .*$", section, re.MULTILINE)
    (shown,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    ping = ["curl", "--silent", "--fail", f"http://localhost:{ports['8080']}/ping"]
    until(lambda: subprocess.run(ping, capture_output=True, check=False).returncode == 0, "/ping is 200")

    said = []
    for command in commands:
        here = command.replace("localhost:8080", f"localhost:{ports['8080']}").replace("/opt/ml/models", str(FOLDER / "buckets" / "models"))
        said.append(subprocess.run(["bash", "-c", here], capture_output=True, text=True, check=True, timeout=60).stdout)

    assert len(commands) == 3
    assert "\n".join(said) + "\n" == shown
    container.signal(signal.SIGTERM)
    assert container.wait(60) == 0


def test_the_container_is_closed_but_for_the_contract_and_the_metrics(service: dict[str, Any]) -> None:
    assert (service["read_only"], service["cap_drop"], service["security_opt"]) == (True, ["ALL"], ["no-new-privileges:true"])
    assert {(each["host_ip"], each["published"], each["target"]) for each in service["ports"]} == {
        ("127.0.0.1", port, int(port)) for port in ("8080", "9464")
    }
    mounts = {each["target"]: each for each in service["volumes"]}
    assert (mounts["/opt/ml/models"]["read_only"], mounts["/models"]["type"], service["tmpfs"]) == (True, "volume", ["/tmp"])
    assert (TOP / service["build"]["dockerfile"]) == SAGEMAKER


def test_the_grace_of_the_container_is_longer_than_that_of_its_parts(service: dict[str, Any]) -> None:
    assert service["stop_grace_period"] == "45s", "GRACE_PERIOD_SECONDS is 25, TRITON_EXIT_SECONDS 10"


def test_images_are_those_of_the_dockerfile_and_of_the_other_file(service: dict[str, Any]) -> None:
    arguments, _ = stages(SAGEMAKER.read_text())
    adapter = services_of("compose.yaml")["adapter"]["image"]

    assert service["build"]["args"] == {"ADAPTER_IMAGE": adapter, "TRITON_IMAGE": arguments["TRITON_IMAGE"]}
    assert service["image"].rpartition(":")[2] == adapter.rpartition(":")[2]
