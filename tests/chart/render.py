"""Renders the chart with the real Helm, from values files of the tests or of a user."""

from __future__ import annotations

import copy
import functools
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.chart import install
from tests.real.children import TOP

CHART = TOP / "deploy" / "helm" / "modelmesh-triton-adapter"
VALUES = TOP / "tests" / "chart" / "values"
REFUSED = TOP / "tests" / "chart" / "refused"
RELEASE = "triton-adapter"
NAMESPACE = "models"
SHOWN_NOTES = "shown-notes.yaml"
ESSENCE = re.compile(r"^(?:Error: )?(?:execution error at \(\S+\): )?(?:.*error calling fail: )?(?:- )?(?P<said>.*)$")
FRAME = re.compile(
    r"values don't meet the specifications|\S+:$|.*: validation failed$|.*'allOf' failed$|Use --debug flag|WARNING|level=|coalesce.go"
)


class RenderError(Exception):
    """Helm refused the values: its words, without what frames them in every refusal."""


def render(
    *value_files: Path, sets: Mapping[str, object] | None = None, namespace: str = NAMESPACE, release: str = RELEASE
) -> list[dict[str, Any]]:
    """
    All objects of `helm template`, in its order. The same question, and its refusal, is asked once by each process.

    Raises:
        RenderError: the schema of the values, a template or Helm itself refused.
        CannotRunError: no Helm on this machine.
    """
    made = _made("template", release, str(CHART), *_words(value_files, sets or {}, namespace))
    if isinstance(made, RenderError):
        raise RenderError(str(made))
    return copy.deepcopy(made)


def notes(*value_files: Path, sets: Mapping[str, object] | None = None) -> str:
    """
    What `helm install` says, and `helm template` leaves out: the notes as a text in an object, in a copy of the chart.

    Raises:
        RenderError: as `render` does.
    """
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(shutil.copytree(CHART, Path(folder) / "chart"))
        text = (chart / "templates" / "NOTES.txt").read_text()
        template = f'{{{{ define "tests.notes" }}}}{text}{{{{ end }}}}{{"notes": {{{{ include "tests.notes" . | toJson }}}}}}'
        (chart / "templates" / SHOWN_NOTES).write_text(template)
        words = _words(value_files, sets or {}, NAMESPACE)
        return str(yaml.safe_load(_run("template", RELEASE, str(chart), "--show-only", f"templates/{SHOWN_NOTES}", *words))["notes"])


def readable(*objects: Mapping[str, Any], width: int) -> str:
    """The objects as YAML for people: keys in their order, texts of several lines as lines."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=width, allow_unicode=True)


class _Dumper(yaml.CSafeDumper):
    """Knows how texts are written."""


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def of_kind(objects: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Those objects."""
    return [found for found in objects if found["kind"] == kind]


def the_runtime(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The one ServingRuntime or ClusterServingRuntime."""
    (found,) = [found for found in objects if found["kind"] in ("ServingRuntime", "ClusterServingRuntime")]
    return found


def _words(value_files: Sequence[Path], sets: Mapping[str, object], namespace: str) -> list[str]:
    words = ["--namespace", namespace]
    words += [word for path in value_files for word in ("--values", str(path))]
    return words + [word for name, value in sets.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]


@functools.cache
def _made(*words: str) -> list[dict[str, Any]] | RenderError:
    try:
        return [found for found in yaml.load_all(_run(*words), Loader=yaml.CSafeLoader) if found]
    except RenderError as refusal:
        return refusal


def _run(*words: str) -> str:
    done = subprocess.run([install.helm(), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (line.strip() for line in done.stderr.splitlines())
        said = (match["said"] for line in lines if line and (match := ESSENCE.match(line)))
        raise RenderError("\n".join(line for line in said if not FRAME.match(line)))
    return done.stdout
