"""Renders the chart with the real Helm, from values files of the tests or of a user."""

from __future__ import annotations

import functools
import json
import subprocess
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
MONITORING = "monitoring.coreos.com/v1"


class RenderError(Exception):
    """Helm refused the values; its words without what is the same in all of them."""


def render(
    *value_files: Path,
    sets: Mapping[str, object] | None = None,
    namespace: str = NAMESPACE,
    release: str = RELEASE,
    kube_version: str | None = None,
    api_versions: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """
    All objects of `helm template`, in its order.

    Raises:
        RenderError: Helm, the schema of the values or a template refused.
        CannotRunError: no Helm on this machine.
    """
    text = template(*value_files, sets=sets, namespace=namespace, release=release, kube_version=kube_version, api_versions=api_versions)
    return [found for found in yaml.safe_load_all(text) if found]


def template(
    *value_files: Path,
    sets: Mapping[str, object] | None = None,
    namespace: str = NAMESPACE,
    release: str = RELEASE,
    kube_version: str | None = None,
    api_versions: Sequence[str] = (),
    notes: bool = False,
) -> str:
    """The text of `helm template`; with `notes` what `helm install` would say instead. Raises as `render` does."""
    words = [release, str(CHART), "--namespace", namespace]
    words += [word for path in value_files for word in ("--values", str(path))]
    words += [word for name, value in (sets or {}).items() for word in ("--set-json", f"{name}={json.dumps(value)}")]
    words += ["--kube-version", kube_version] if kube_version else []
    words += [word for version in api_versions for word in ("--api-versions", version)]
    return _helm(("install", "--dry-run=client", *words) if notes else ("template", *words))


def objects(rendered: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Those of one kind."""
    return [found for found in rendered if found["kind"] == kind]


def runtime(rendered: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The one ServingRuntime or ClusterServingRuntime."""
    (found,) = [found for found in rendered if found["kind"] in ("ServingRuntime", "ClusterServingRuntime")]
    return found


@functools.cache
def _helm(words: tuple[str, ...]) -> str:
    done = subprocess.run([install.helm(), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RenderError(_essence(done.stderr))
    return done.stdout


def _essence(stderr: str) -> str:
    """One line for each thing that is wrong: `error calling fail: ` and the places in the templates say nothing to a user."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = [
        line for line in lines if not line.startswith(("WARNING", "level=", "Use --debug", "walk.go")) and "/templates/NOTES" not in line
    ]
    return "\n".join(line.rpartition("error calling fail: ")[2].removeprefix("Error: ").removeprefix("- ") for line in said)
