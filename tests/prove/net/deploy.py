"""Mistakes in the Helm chart."""

from __future__ import annotations

from tests.prove.net.mistakes import Mistake

CHART = "deploy/helm/modelmesh-triton-adapter"
MISTAKES = (
    Mistake(
        "polling Triton",
        "Triton polls its repository instead of being told.",
        f"{CHART}/templates/_triton.tpl",
        "--model-control-mode=explicit",
        "--model-control-mode=poll",
        ("chart/test_renders_are_the_committed_ones.py", "chart/test_every_values_file_becomes_a_sound_pod.py"),
    ),
    Mistake(
        "secret that can be written",
        "The storage secret is mounted for writing.",
        f"{CHART}/templates/_adapter.tpl",
        "mountPath: /storage-config, readOnly: true}",
        "mountPath: /storage-config}",
        ("chart/test_renders_are_the_committed_ones.py", "chart/test_the_security_page_is_true.py"),
    ),
)
