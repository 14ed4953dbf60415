"""The lists of the image: exact versions as in the constraints, everything that is needed, a wheel for each place."""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import lock
from tests.real.children import TOP

LISTS = (*lock.VARIANTS, "build")
ENTRY = re.compile(r"^([\w.-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def entries(path: Path) -> dict[str, tuple[str, int]]:
    """Package → its version, and how many hashes it has."""
    text = path.read_text()
    found = {str(canonicalize_name(name)): (str(version), int(hashes.count("--hash"))) for name, version, hashes in ENTRY.findall(text)}
    assert ENTRY.sub("", text).count("\n") == 1, "more than the header and entries"
    return found


def constraints() -> dict[str, str]:
    rows = (line.split("==") for line in lock.CONSTRAINTS.read_text().splitlines() if "==" in line)
    return {canonicalize_name(name): version for name, version in rows}


def closure(requirements: list[str]) -> set[str]:
    """What these requirements bring along, by the metadata of what is installed here, in any of the image's places."""
    found: set[str] = set()
    waiting = [Requirement(line) for line in requirements]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        found.add(name)
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += [wanted for line in distribution(name).requires or () if is_wanted(wanted := Requirement(line), extra)]
    return found


def is_wanted(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({**place, "extra": extra}) for place in lock.environments())


@pytest.mark.parametrize("name", LISTS)
def test_versions_are_those_of_the_constraints(name: str) -> None:
    """Of the build tools, the maker of the SBOM brings packages that nothing else here needs."""
    pins, found = constraints(), entries(lock.path_of(name))

    assert {package for package, (version, _) in found.items() if pins.get(package, version) != version} == set()
    if name == "build":
        assert {"setuptools", "grpcio-tools", "mypy-protobuf", "cyclonedx-bom"} <= set(found)
    else:
        assert set(found) <= set(pins)


@pytest.mark.parametrize("variant", lock.VARIANTS)
def test_a_variant_holds_what_its_extras_need_but_for_what_is_never_imported(variant: str) -> None:
    needed = closure(lock.wanted(variant))

    assert needed - set(entries(lock.path_of(variant))) == set(lock.UNUSED)
    assert set(entries(lock.path_of(variant))) - needed == set()


@pytest.mark.parametrize("name", LISTS)
def test_the_compiled_ones_have_a_wheel_for_each_machine(name: str) -> None:
    """One hash serves all; a compiled package has two at least, and one for each Python where it has no stable ABI."""
    counts = {package: count for package, (_, count) in entries(lock.path_of(name)).items()}

    assert counts["grpcio"] == len(lock.MACHINES) * len(lock.PYTHONS)
    assert counts["protobuf"] == len(lock.MACHINES) + 1  # and a pure one
    assert set(counts.values()) - {1} >= {2, 4} or name == "build"


def test_the_lists_are_in_the_dockerfile() -> None:
    text = (TOP / "deploy/Dockerfile").read_text()

    assert "deploy/image/requirements-${VARIANT}.txt" in text and "deploy/image/requirements-build.txt" in text
    assert "ARG VARIANT=full" in text and "full" in lock.VARIANTS
