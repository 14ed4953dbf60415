"""What Kubernetes makes of a container's words: its environment, and `$(NAME)` in it, in the command and in the arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kMGTP]|[KMGTP]i)?")
_SUFFIXES = {None: Decimal(1), "m": Decimal("0.001"), "k": Decimal(1000)}
_SUFFIXES |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTP", 1)}
_SUFFIXES |= {letter: Decimal(1000) ** power for power, letter in enumerate("MGTP", 2)}

Objects = Mapping[str, Mapping[str, str]]
"""Secrets: name → key → text."""


class CannotStartError(Exception):
    """The kubelet would not start this container; says why."""


def quantity(text: str) -> Decimal:
    """A quantity of Kubernetes: `500m`, `8Gi`."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise CannotStartError(f"{text!r} is no quantity")
    return Decimal(match[1]) * _SUFFIXES[match[2]]


def environment(container: Mapping[str, Any], pod: Mapping[str, Any], secrets: Objects) -> dict[str, str]:
    """Of a container of the pod; an entry sees those above it."""
    env: dict[str, str] = {}
    for entry in container.get("env") or ():
        text = _from(entry["valueFrom"], container, pod, secrets) if "valueFrom" in entry else expand(entry.get("value", ""), env)
        if text is not None:
            env[entry["name"]] = text
    return env


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` of a known name; `$$` is a dollar, and other references stay as they are."""
    return _REFERENCE.sub(lambda match: "$" if match[0] == "$$" else env.get(match[1], match[0]), text)


def words(container: Mapping[str, Any], env: Mapping[str, str], entrypoint: Sequence[str] = ()) -> list[str]:
    """What runs: the command (or the image's) and the arguments."""
    return [expand(str(word), env) for word in [*(container.get("command") or entrypoint), *(container.get("args") or ())]]


def _from(source: Mapping[str, Any], own: Mapping[str, Any], pod: Mapping[str, Any], secrets: Objects) -> str | None:
    if (field := source.get("resourceFieldRef")) is not None:
        name = field.get("containerName") or own["name"]
        container = next((each for each in pod["containers"] if each["name"] == name), None)
        if container is None:
            raise CannotStartError(f"resourceFieldRef names the container {name!r}, which the pod has not")
        kind, _, resource = field["resource"].partition(".")
        resources = container.get("resources") or {}
        amount = resources.get(kind, {}).get(resource) or resources.get("limits", {}).get(resource) or "0"
        return str((quantity(amount) / quantity(field.get("divisor") or "1")).to_integral_value(ROUND_CEILING))
    if (reference := source.get("secretKeyRef")) is not None:
        if reference["name"] not in secrets and not reference.get("optional"):
            raise CannotStartError(f"there is no {reference['name']!r}")
        text = secrets.get(reference["name"], {}).get(reference["key"])
        if text is None and not reference.get("optional"):
            raise CannotStartError(f"{reference['name']!r} has no key {reference['key']!r}")
        return text
    raise CannotStartError(f"the stand-in of the kubelet does not know {source}")
