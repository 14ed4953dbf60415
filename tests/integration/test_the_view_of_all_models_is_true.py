"""`models` beside the real Triton and a real adapter, alive and dead: a process of its own, as an operator runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.integration.conftest import Pod, Put
from tests.real.models import digits_classifier, text_statistics
from tests.real.polls import until


def models(pod: Pod, *options: str) -> tuple[int, str]:
    """Exit code and output, with the three settings that say where to look."""
    settings = {name: pod.adapter.settings[name] for name in ("ADAPTER_PORT", "ROOT_MODEL_DIR", "RUNTIME_ENDPOINT")}
    measured = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    done = subprocess.run(
        [sys.executable, "-m", "adapter", "models", *options],
        capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"], "COLUMNS": "80"} | measured | settings,
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, done.stdout


def found(pod: Pod) -> dict[str, Any]:
    """The models, each with its drift and its state, and what was said of the whole."""
    code, output = models(pod, "--json")
    document = json.loads(output)
    assert code == (0 if document["agrees"] else 1)
    return {model["id"]: (model["drift"], (model["adapter"] or {}).get("state")) for model in document["models"]}


def test_the_view_is_true_through_the_deaths_of_triton_and_of_the_adapter(start_pod: Callable[..., Pod], put: Put) -> None:
    put("view-digits", {"model.onnx": digits_classifier().onnx_bytes()})
    put("view-texts", text_statistics())
    pod = start_pod({"CACHE_MAX_BYTES": "1GiB", "LOADTIME_TIMEOUT": "90000"}, completes=True)
    pod.mesh.start()
    assert models(pod)[1].splitlines()[-1] == "0 models: all agree."
    pod.mesh.load("digits", "onnx", "view-digits")
    pod.mesh.load("texts", "python", "view-texts")

    code, output = models(pod)
    assert code == 0
    assert output.splitlines()[-1] == "2 models (2 loaded): all agree."
    assert "alive, ready" in output and "serves 2 models" in output

    pod.mesh.load("gone", "onnx", "view-digits")
    assert found(pod)["gone"] == (None, "loaded")
    pod.mesh.unload("gone")
    assert "gone" not in found(pod)

    pod.adapter.kill()
    assert found(pod) == {"digits": (None, "loaded"), "texts": (None, "loaded")}
    assert "connection refused" in models(pod)[1]

    pod.triton.kill()
    code, output = models(pod)
    assert code == 1
    assert output.splitlines()[-1] == "2 models (2 loaded): none is known to disagree, but Triton could not be asked."
    pod.triton.start()
    until(pod.triton.is_live, "Triton is live")
    assert found(pod) == {"digits": ("lost", "loaded"), "texts": ("lost", "loaded")}
    assert models(pod, "--drift")[1].splitlines()[-1] == "2 models (2 loaded): 2 disagree."
