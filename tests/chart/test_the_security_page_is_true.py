"""What `deploy/docs/security.md` says of containers and ports, against what the chart renders and the controller makes of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.controller import assemble
from tests.chart.render import VALUES, render, the_runtime

PAGE = (Path(__file__).parents[2] / "deploy" / "docs" / "security.md").read_text()
MODES = ("adapterPull", "storageHelper", "builtInAdapter")
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
"""What the standard "restricted" asks of each container, beside seccomp."""


def pod(**sets: object) -> dict[str, dict[str, Any]]:
    """Containers of the pod, by name."""
    found = assemble(the_runtime(render(sets=sets)))
    return {container["name"]: container for container in found["spec"]["containers"]}


def is_restricted(container: dict[str, Any]) -> bool:
    context = container.get("securityContext") or {}
    return RESTRICTED.items() <= context.items() and context.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost")


def test_our_containers_are_restricted_and_modelmeshs_own_are_not() -> None:
    assert {name for name, container in pod().items() if is_restricted(container)} == {"triton", "triton-adapter"}


def test_the_controllers_container_of_the_adapter_drops_capabilities_alone() -> None:
    assert pod(**{"runtime.mode": "builtInAdapter"})["triton-adapter"]["securityContext"] == {"capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize("mode", MODES)
def test_triton_never_sees_the_storage_secret(mode: str) -> None:
    paths = {name: {mount["mountPath"] for mount in each.get("volumeMounts", ())} for name, each in pod(**{"runtime.mode": mode}).items()}

    assert "/storage-config" not in paths["triton"]
    assert "/storage-config" in paths["puller" if mode == "storageHelper" else "triton-adapter"]


def test_the_policy_opens_the_ports_of_the_table_and_no_other() -> None:
    table = PAGE.partition("## Who reaches which port")[2].partition("##")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("|")][2:]
    (policy,) = [each for each in render() if each["kind"] == "NetworkPolicy"]

    opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}

    assert opened == {int(port) for ports, where in rows if "all" in where for port in re.findall(r"\d+", ports)}
    assert not opened & {int(port) for ports, where in rows if "loopback" in where for port in re.findall(r"\d+", ports)}


def test_the_values_for_a_shared_key_are_those_that_a_values_file_tries() -> None:
    tried = yaml.safe_load((VALUES / "restricted-protocols.yaml").read_text())["triton"]["restrictedProtocols"]

    (written,) = [given for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "triton" in (given := yaml.safe_load(text))]
    assert written["triton"]["restrictedProtocols"].items() <= tried.items()


def test_helm_test_alone_asks_for_a_right() -> None:
    """To read one Deployment."""
    (pod,) = [each for each in render() if each["kind"] == "Pod"]
    (role,) = [each for each in render() if each["kind"].endswith("Role")]
    (rule,) = role["rules"]

    assert pod["spec"]["serviceAccountName"] == role["metadata"]["name"]
    assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == (["deployments"], ["modelmesh-serving-triton-2.x"], ["get"])
