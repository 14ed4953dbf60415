"""What is built and installed, and the commands that do it."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parents[2]
COMMANDS = sorted(path for path in (TOP / "scripts").iterdir() if path.is_file() and path.suffix == "")
BUILD = "import sys; from setuptools import build_meta as b; print(b.{step}(sys.argv[1]))"


@pytest.fixture(scope="module")
def metadata() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(TOP / "setup.cfg")
    return parser


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    """Package → its exact version in the constraints."""
    lines = (TOP / "scripts" / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that was built from an sdist, which was built from a tree without anything generated."""
    folder = tmp_path_factory.mktemp("build")
    unwanted = shutil.ignore_patterns(".*", "_pb", "__pycache__", "*.egg-info", "build", "dist", "tests")
    shutil.copytree(TOP, folder / "tree", ignore=unwanted)
    sdist = build("build_sdist", folder / "tree", folder)
    shutil.unpack_archive(sdist, folder / "unpacked", filter="data")
    (tree,) = (folder / "unpacked").iterdir()
    return build("build_wheel", tree, folder)


def build(step: str, tree: Path, target: Path) -> Path:
    result = subprocess.run(
        [sys.executable, "-c", BUILD.format(step=step), str(target)], cwd=tree, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return target / result.stdout.splitlines()[-1]


def requirements(metadata: configparser.ConfigParser) -> list[Requirement]:
    sections = [metadata["options"]["install_requires"], *metadata["options.extras_require"].values()]
    return [Requirement(line) for section in sections for line in section.splitlines() if line and not line.startswith("#")]


def test_a_wheel_from_an_sdist_holds_the_generated_modules_and_their_types(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    assert {f"adapter/_pb/model_runtime_pb2{kind}" for kind in (".py", ".pyi", "_grpc.py", "_grpc.pyi")} <= names
    assert {"adapter/__init__.py", "adapter/__main__.py", "adapter/_pb/__init__.py", "adapter/py.typed"} <= names
    assert not [name for name in names if not name.startswith(("adapter/", "modelmesh_triton_adapter-"))]


def test_a_wheel_holds_every_module_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("adapter/") and "/_pb/" not in name}
    ours = {path.relative_to(TOP).as_posix() for path in (TOP / "adapter").rglob("*.py") if "_pb" not in path.parts}

    assert {name for name in packed if name.endswith(".py")} == ours


def test_a_wheel_imports_without_the_source(wheel: Path, tmp_path: Path) -> None:
    """The generated modules find each other inside the package, and only there."""
    source = "import adapter._pb.model_runtime_pb2_grpc as m, adapter.cli; print(m.__file__)"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(wheel)}
    found = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout

    assert found.startswith(str(wheel))


def test_the_generated_modules_are_current(wheel: Path) -> None:
    """What the tests import is what proto/ says: `scripts/check` makes it anew."""
    generated = sorted((TOP / "adapter" / "_pb").glob("*.py*"))

    assert len(generated) == 5
    with zipfile.ZipFile(wheel) as archive:
        assert [path.name for path in generated if archive.read(f"adapter/_pb/{path.name}") != path.read_bytes()] == []


def test_the_console_script_is_the_command_line(metadata: configparser.ConfigParser) -> None:
    assert metadata["options.entry_points"]["console_scripts"].split() == ["modelmesh-triton-adapter", "=", "adapter.cli:main"]


def test_every_requirement_is_pinned_within_its_bounds(metadata: configparser.ConfigParser, pins: dict[str, str]) -> None:
    wanted = [r for r in requirements(metadata) if r.name != "modelmesh-triton-adapter"]

    assert [r.name for r in wanted if not r.specifier.contains(pins.get(canonicalize_name(r.name), "0"))] == []


def test_the_compiler_is_the_same_everywhere(metadata: configparser.ConfigParser, pins: dict[str, str]) -> None:
    """In a build, in the development tools, and in the constraints."""
    build_system = tomllib.loads((TOP / "pyproject.toml").read_text())["build-system"]["requires"]
    declared = {line.strip() for line in metadata["options.extras_require"]["dev"].splitlines()}

    for tool in ("grpcio-tools", "mypy-protobuf"):
        assert f"{tool}=={pins[tool]}" in build_system
        assert f"{tool}=={pins[tool]}" in declared


@pytest.mark.parametrize("command", COMMANDS, ids=lambda path: path.name)
def test_a_command_is_short_strict_and_listed(command: Path) -> None:
    """At most 20 lines, fails at the first failure, works from any directory, and has its line in the README."""
    lines = command.read_text().splitlines()

    assert os.access(command, os.X_OK)
    assert lines[0] == "#!/usr/bin/env bash" and lines[1].startswith("# ")
    assert lines[2:4] == ["set -euo pipefail", 'cd "$(dirname "$(realpath "$0")")/.."']
    assert len(lines) <= 20
    assert f"| `scripts/{command.name}` |" in (TOP / "scripts" / "README.md").read_text()


def test_continuous_integration_runs_the_commands_of_the_readme() -> None:
    calls = [line for line in (TOP / ".ci" / "run").read_text().splitlines() if line.startswith("scripts/")]

    assert calls == ["scripts/check", "scripts/lock --check", "scripts/test", "scripts/build"]
    assert not re.search(r"\b(pip|pytest|python)\b", (TOP / ".ci" / "run").read_text())
