"""What a container is given: its environment, its words, its volumes, its user. Nothing is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chart.pod.env import environment, expand, quantity, words
from tests.chart.pod.volumes import Volumes

SECRETS = {"s": {"key": "se$(cret)", "other": "o"}}
POD = {"containers": [{"name": "big", "resources": {"requests": {"memory": "1.5Gi"}, "limits": {"memory": "2Gi", "cpu": "2500m"}}}]}


def env_of(*entries: dict[str, Any], **more: Any) -> dict[str, str]:
    return environment({"name": "own", "env": list(entries), **more}, POD, SECRETS, {"m": {"a": "1"}})


@pytest.mark.parametrize(("text", "number"), [("8Gi", 8 << 30), ("500m", 0.5), ("1k", 1000), ("2M", 2_000_000), ("7", 7), ("1.5Ki", 1536)])
def test_quantities_have_units(text: str, number: float) -> None:
    assert float(quantity(text)) == number


def test_references_are_resolved_in_order() -> None:
    """Those to a later name, or to none, stay as they are."""
    env = env_of({"name": "A", "value": "1$(B)"}, {"name": "B", "value": "$(A)-$$(A)-$(NONE)"})

    assert env == {"A": "1$(B)", "B": "1$(B)-$(A)-$(NONE)"}
    assert words({"command": ["sh", "-c"], "args": ["echo $(A) $B $(date)"]}, env) == ["sh", "-c", "echo 1$(B) $B $(date)"]
    assert expand("$$(A)$$", env) == "$(A)$"


@pytest.mark.parametrize(
    ("resource", "divisor", "text"),
    [("requests.memory", None, str(3 << 29)), ("limits.memory", "1Mi", "2048"), ("limits.cpu", None, "3"), ("requests.cpu", "1m", "2500")],
)
def test_resources_of_another_container_are_told(resource: str, divisor: str | None, text: str) -> None:
    """Rounded up; a request that is not written is the limit."""
    field = {"containerName": "big", "resource": resource} | ({"divisor": divisor} if divisor else {})

    assert env_of({"name": "R", "valueFrom": {"resourceFieldRef": field}}) == {"R": text}


def test_values_of_secrets_are_taken_as_they_are() -> None:
    """And what is optional may be missing. A list of whole objects goes before single entries."""
    single = {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}}
    missing = {"name": "M", "valueFrom": {"secretKeyRef": {"name": "s", "key": "none", "optional": True}}}
    sources = [
        {"secretRef": {"name": "s"}, "prefix": "P_"},
        {"configMapRef": {"name": "m"}},
        {"secretRef": {"name": "x", "optional": True}},
    ]

    assert env_of(single, missing, {"name": "a", "value": "2"}, envFrom=sources) == {
        "P_key": "se$(cret)", "P_other": "o", "a": "2", "S": "se$(cret)",
    }  # fmt: skip


def test_a_secret_is_replaced_in_one_step(tmp_path: Path) -> None:
    """As the kubelet does: links through a link. A new key appears, a key that has gone cannot be read."""
    secrets = {"s": {"a": "1", "b": "1"}}
    volumes = Volumes(tmp_path, secrets, {}, {})
    volumes.make([{"name": "v", "secret": {"secretName": "s"}}, {"name": "o", "secret": {"secretName": "none", "optional": True}}])
    shown = volumes.source({"name": "v"})
    secrets["s"] = {"a": "2", "c": "2"}
    assert ((shown / "a").read_text(), (shown / "c").exists()) == ("1", False)

    volumes.refresh("s")

    assert ((shown / "a").read_text(), (shown / "b").exists(), (shown / "c").read_text()) == ("2", False, "2")
    assert [path.name for path in volumes.source({"name": "o"}).iterdir() if not path.name.startswith("..")] == []
