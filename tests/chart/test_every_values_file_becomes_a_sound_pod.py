"""Each file of `values/`: objects that an API server stores as they are, a runtime that the controller takes, a pod that works."""

from __future__ import annotations

import pytest
import yaml

from tests.chart import admission, controller, matrix, render, soundness

every = pytest.mark.parametrize("case", matrix.values(), ids=lambda case: case.name)
every_pod = pytest.mark.parametrize(
    "case", [case for case in matrix.values() if case.name != "namespace-extras"], ids=lambda case: case.name
)


@every
def test_every_object_has_a_name_of_its_own_in_the_namespace(case: matrix.Case) -> None:
    objects = case.objects()

    assert len({(found["kind"], found["metadata"]["name"]) for found in objects}) == len(objects)
    assert all(found["metadata"].get("namespace") == "models" for found in objects if not found["kind"].startswith("Cluster"))


@every_pod
def test_the_controller_takes_the_runtime_and_drops_nothing(case: matrix.Case) -> None:
    assert admission.validate(case.runtime()) == []
    assert controller.dropped(case.runtime()) == []


@every_pod
def test_the_pod_is_sound(case: matrix.Case) -> None:
    assert soundness.problems(case.pod()) == []


def test_every_value_is_set_by_a_values_file() -> None:
    """Parts of a format and of a security context are, in one of them."""
    known = yaml.safe_load((render.CHART / "values.yaml").read_text())
    tried = {path for case in (*matrix.values(), *matrix.refused()) for path in matrix.leaves(yaml.safe_load(case.path.read_text()) or {})}
    wanted = {path for path in matrix.leaves(known) if ".securityContext." not in path and not path.startswith("formats.")}
    wanted |= {"triton.securityContext", "adapter.securityContext"} | {f"formats.{name}" for name in known["formats"]}
    assert sorted(path for path in wanted if not any(f"{each}.".startswith(f"{path}.") for each in tried)) == []
