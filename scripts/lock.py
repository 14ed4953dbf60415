"""
Writes what the image is made of: every package with its exact version and the hashes of its wheels.

Versions are those of `constraints.txt`, so what is shipped is what is tested. uv resolves, for Linux on x86-64 and arm64 and for the
Pythons that the adapter is tested with; only wheels are listed, so no compiler is needed.
"""

from __future__ import annotations

import argparse
import configparser
import functools
import itertools
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

TOP = Path(__file__).resolve().parents[1]
CONSTRAINTS = TOP / "scripts" / "constraints.txt"
VARIANTS: Mapping[str, tuple[str, ...]] = {"s3": ("http",), "full": ("gcs", "http")}
"""Variant of the image → extras of setup.cfg."""
UNUSED = ("ml-dtypes", "python-rapidjson")
"""What tritonclient asks for and adapter/stubs.py does without: 30 MB that would never be imported."""
SBOM_TOOL = "cyclonedx-bom==7.5.0"
MACHINES = ("aarch64", "x86_64")
PYTHONS = ((3, 11), (3, 12))
NEWEST_GLIBC = 36
"""2.36, of Debian 12, which the image stands on."""
HEADER = "# {title}. Made by scripts/lock; versions are those of scripts/constraints.txt.\n"


def path_of(name: str) -> Path:
    """The file of a variant, or of the `build` tools."""
    return TOP / "deploy" / "image" / f"requirements-{name}.txt"


def wanted(name: str) -> list[str]:
    """Requirements as setup.cfg and pyproject.toml state them."""
    if name == "build":
        system = tomllib.loads((TOP / "pyproject.toml").read_text())["build-system"]
        return [*system["requires"], SBOM_TOOL]
    setup = configparser.ConfigParser()
    setup.read(TOP / "setup.cfg")
    lists = [setup["options"]["install_requires"], *(setup["options.extras_require"][extra] for extra in VARIANTS[name])]
    return [line.strip() for text in lists for line in text.splitlines() if line.strip() and not line.startswith("#")]


def locked(name: str, *, keep: bool) -> str:
    """The text of one file. `keep`: versions that no constraint names stay as they are in the present file."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "requirements.in"), Path(folder, "pylock.toml")
        source.write_text("\n".join(wanted(name)))
        command = [str(Path(sysconfig.get_path("scripts"), "uv")), "pip", "compile", "--quiet", "--universal", "--no-config"]
        command += ["--python-version", ".".join(map(str, PYTHONS[0])), "--only-binary", ":all:", "--format", "pylock.toml"]
        command += ["--constraint", str(CONSTRAINTS)]
        command += ["--constraint", str(path_of(name))] if keep and path_of(name).exists() else []
        done = subprocess.run([*command, str(source), "-o", str(target)], capture_output=True, text=True, check=False)  # noqa: S603 - uv
        if done.returncode:
            sys.exit(f"lock: {name}: {done.stderr.strip()}")
        packages = tomllib.loads(target.read_text())["packages"]
    shipped = [package for package in packages if _belongs(package) and package["name"] not in UNUSED]
    return HEADER.format(title=_title(name)) + "".join(map(_entry, shipped))


def _title(name: str) -> str:
    if name == "build":
        return "What builds the image and is not in it: the build tools of the wheel, and the maker of the SBOM"
    return f"What the image is made of, variant {name}: {', '.join(VARIANTS[name]) or 'no'} extras"


def _belongs(package: Mapping[str, Any]) -> bool:
    """Whether the package is installed. Raises SystemExit when some of our Pythons and machines need it and others do not."""
    marker = package.get("marker")
    answers = {Marker(marker).evaluate(environment) if marker else True for environment in environments()}
    if len(answers) != 1:
        sys.exit(f"lock: {package['name']} is needed in a part of the environments ({marker}): one list cannot serve them all")
    return answers.pop()


def environments() -> Iterator[dict[str, str]]:
    """What markers of requirements are asked about."""
    for machine, version in itertools.product(MACHINES, PYTHONS):
        short = ".".join(map(str, version))
        yield {"platform_machine": machine, "python_version": short, "python_full_version": f"{short}.0", "sys_platform": "linux"}


def _entry(package: Mapping[str, Any]) -> str:
    wheels = [(parse_wheel_filename(each["url"].rpartition("/")[2])[3], each["hashes"]["sha256"]) for each in package.get("wheels", ())]
    fitting = [{found for tags, found in wheels if not tags.isdisjoint(known)} for known in _tags()]
    if not all(fitting):
        sys.exit(f"lock: {package['name']} {package['version']} has no wheel for some of our Pythons and machines")
    hashes = sorted(set[str]().union(*fitting))
    return f"{package['name']}=={package['version']} \\\n" + " \\\n".join(f"    --hash=sha256:{value}" for value in hashes) + "\n"


@functools.cache
def _tags() -> tuple[frozenset[Tag], ...]:
    """Of each of our places, the tags of the wheels that pip installs there."""
    found = []
    for machine, version in itertools.product(MACHINES, PYTHONS):
        platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(NEWEST_GLIBC + 1)]
        platforms += [f"manylinux{year}_{machine}" for year in ("2014", "2010", "1")]
        found.append(frozenset((*cpython_tags(version, platforms=platforms), *compatible_tags(version, platforms=platforms))))
    return tuple(found)


def main() -> None:
    """Write the files, or complain with --check."""
    parser = argparse.ArgumentParser(prog="scripts/lock", description="Write the image's packages with their hashes.")
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 when a file is not current")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions of what no constraint names (the SBOM's maker)")
    chosen = parser.parse_args()
    texts = {name: locked(name, keep=not chosen.upgrade) for name in (*VARIANTS, "build")}
    stale = [name for name, text in texts.items() if not path_of(name).exists() or path_of(name).read_text() != text]
    if chosen.check and stale:
        sys.exit(f"lock: not current: {', '.join(str(path_of(name).relative_to(TOP)) for name in stale)}; run scripts/lock")
    for name in stale:
        path_of(name).write_text(texts[name])
        print(f"lock: {path_of(name).relative_to(TOP)}")


if __name__ == "__main__":
    main()
