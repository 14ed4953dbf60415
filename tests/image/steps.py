"""
The builder stages of the Dockerfile without a container engine: its own COPY and RUN lines, below a folder.

Each absolute path that the stages make becomes one below the folder, and `python` is the interpreter that runs the tests. What
only a root file system can show (the last stage) is tried by `python -m tests.image.build`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.image.dockerfile import DOCKERFILE, Instruction, stages
from tests.real.children import TOP

OURS = ("/tools", "/locks", "/src", "/dist", "/sbom", "/opt/adapter", "/usr/share/sbom", "/usr/local/bin", "/models", "/opt/ml/models")
_PATH = re.compile(r"(?<![\w./-])/[\w][\w./*-]*")
_BASE = str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())


class StepFailed(Exception):
    """A RUN line ended with an error; with what it said."""


def build(folder: Path, arguments: Mapping[str, str]) -> None:
    """Run all stages but the last. Raises StepFailed."""
    _, found = stages(DOCKERFILE.read_text())
    for stage in found[:-1]:
        directory = folder
        values = {each.value.partition("=")[0]: each.value.partition("=")[2] for each in stage.all("ARG")} | dict(arguments)
        for each in stage.instructions:
            if each.word == "WORKDIR":
                directory = Path(moved(each.value, folder))
                directory.mkdir(parents=True, exist_ok=True)
            elif each.word == "COPY" and "from" not in each.flags:  # from another stage: all stages are in one folder
                _copy(each, directory, folder, values)
            elif each.word == "RUN":
                _run(moved(each.value, folder), directory)


def stand_on(folder: Path, dockerfile: Path) -> None:
    """
    Run the last stage of another Dockerfile, which takes from the image that was built in the folder what its COPY lines say.

    The rest of that image is gone afterwards: the other one has another base. Raises StepFailed.
    """
    image = folder / "image"
    (image / "usr/share").mkdir(parents=True)
    (folder / "opt").rename(image / "opt")
    (folder / "sbom").rename(image / "usr/share/sbom")
    (folder / "usr/local/bin").mkdir(parents=True)
    for each in stages(dockerfile.read_text())[1][-1].instructions:
        if each.word == "COPY":
            source, target = (word.removeprefix("/") for word in each.words())
            place = folder / target / (Path(source).name if (image / source).is_file() else "")
            place.parent.mkdir(parents=True, exist_ok=True)
            (image / source).rename(place)
        elif each.word == "RUN":
            _run(moved(each.value, folder), folder)
    shutil.rmtree(image)


def moved(text: str, folder: Path) -> str:
    """The text with each of our absolute paths below the folder. Raises ValueError for another one."""

    def below(match: re.Match[str]) -> str:
        if not any(match[0] == path or match[0].startswith(f"{path}/") for path in OURS):
            raise ValueError(f"{match[0]} is none of {', '.join(OURS)}")
        return f"{folder}{match[0]}"

    return _PATH.sub(below, text)


def _copy(each: Instruction, directory: Path, folder: Path, values: Mapping[str, str]) -> None:
    *sources, target = (re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], word) for word in each.words())
    place = Path(moved(target, folder)) if target.startswith("/") else directory / target
    for name in sources:
        source = TOP / name
        if source.is_dir():
            unwanted = shutil.ignore_patterns("_pb", "__pycache__")  # as .dockerignore
            shutil.copytree(source, place, ignore=unwanted, dirs_exist_ok=True)
        else:
            file = place / source.name if target.endswith("/") else place
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, file)


def _run(command: str, directory: Path) -> None:
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "COVERAGE", "PIP_CONSTRAINT"))
    }
    script = f'set -e; python() {{ "{_BASE}" "$@"; }}; python3() {{ "{_BASE}" "$@"; }}; {command}'
    done = subprocess.run(
        ["sh", "-c", script], cwd=directory, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise StepFailed(f"{command}\n{(done.stdout + done.stderr)[-2000:]}")
