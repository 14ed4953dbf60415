"""Where an emulator of a store or a program for the chart cannot be installed, the skip of its tests says what is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chart import install
from tests.real import emulators, parts
from tests.real.install import CannotRunError


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder on the PATH, empty; nothing is installed yet."""
    monkeypatch.setattr(parts, "PARTS", tmp_path / "parts")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def words_of(part: Callable[[], Path]) -> str:
    with pytest.raises(CannotRunError) as refused:
        part()
    return str(refused.value)


@pytest.mark.parametrize(
    ("part", "name"), [(emulators.fake_gcs, "fake-gcs-server"), (install.helm, "helm"), (install.helm_docs, "helm-docs")]
)
def test_without_go_it_says_to_install_go(programs: Path, part: Callable[[], Path], name: str) -> None:
    assert all(word in words_of(part) for word in (f"/{name}@v", "command go,", "install Go 1.21", "https://"))


def test_without_prometheus_and_without_apt_it_says_what_to_install(programs: Path) -> None:
    assert all(word in words_of(install.prometheus) for word in ("promtool 2.40", "command apt-get,", "apt install prometheus"))


@pytest.mark.parametrize("stream", ["1", "2"], ids=["stdout", "stderr"])
def test_prometheus_on_the_path_is_used_if_it_is_recent(programs: Path, stream: str) -> None:
    for name in ("prometheus", "promtool"):
        write_program(programs / name, f"echo '{name}, version 3.1.0 (branch: x)' >&{stream}")

    assert install.prometheus() == programs


@pytest.mark.parametrize(("prometheus", "promtool"), [("2.39.1", "2.40.0"), ("2.40.0", None), ("2.53", "nonsense")])
def test_prometheus_on_the_path_that_is_old_or_not_whole_is_not_used(programs: Path, prometheus: str, promtool: str | None) -> None:
    write_program(programs / "prometheus", f"echo 'prometheus, version {prometheus}'")
    if promtool:
        write_program(programs / "promtool", f"echo 'promtool, version {promtool}'")

    assert "apt-get" in words_of(install.prometheus)


def test_debians_package_is_unpacked(programs: Path) -> None:
    write_program(programs / "apt-get", "echo a package > prometheus_2_all.deb")
    write_program(programs / "dpkg-deb", "")
    for name in ("sh", "rm"):
        (programs / name).symlink_to(str(shutil.which(name, path=os.defpath)))

    assert install.prometheus() == parts.PARTS / "prometheus" / "usr" / "bin"
    assert not list(parts.PARTS.rglob("*.deb"))


@pytest.mark.parametrize(("there", "missing"), [(None, "node"), ("npm", "node"), ("node", "npm")])
def test_without_node_or_npm_it_says_to_install_both(programs: Path, there: str | None, missing: str) -> None:
    if there:
        write_program(programs / there, "exit 0")

    assert all(word in words_of(emulators.azurite) for word in ("azurite", f"command {missing},", "install Node.js", "npm"))


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "npm error code ETARGET\nnpm error notarget No matching version\nnpm error a\nnpm error b\nnpm error a log is in x",
            "No matching version",
        ),
        ("go: downloading x v1\ngo: x@v1: dial tcp: connection refused", "connection refused"),
        ("", "npm ended with code 7"),
    ],
    ids=["npm", "Go", "nothing"],
)
def test_an_installer_that_fails_is_quoted(programs: Path, tmp_path: Path, said: str, shown: str) -> None:
    (tmp_path / "said").write_text(said)
    write_program(programs / "node", "exit 0")
    write_program(programs / "npm", f"{shutil.which('cat', path=os.defpath)} {tmp_path / 'said'} >&2; exit 7")

    text = words_of(emulators.azurite)

    assert shown in text
    assert "\n" not in text and "downloading" not in text and "a log is in" not in text


def test_an_emulator_that_is_installed_needs_its_installer_no_more(programs: Path) -> None:
    """npm may go; node runs the program."""
    write_program(programs / "node", "exit 0")
    (parts.PARTS / "azurite").mkdir(parents=True)
    (parts.PARTS / "azurite" / "stamp").write_text(emulators.AZURITE)

    assert emulators.azurite().is_relative_to(parts.PARTS)


@pytest.mark.parametrize("there", ["one", "two"], ids=["one is missing", "all are there"])
def test_what_can_be_had_is_installed_and_the_rest_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], there: str
) -> None:
    monkeypatch.delenv("CI", raising=False)
    asked = []

    def one() -> None:
        asked.append("one")
        if there == "one":
            raise CannotRunError("no Go")

    parts.install(one, lambda: asked.append("two"))

    assert asked == ["one", "two"]
    assert capsys.readouterr().out == ("parts: without one: no Go\n" if there == "one" else "")


def test_continuous_integration_does_without_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")

    def one() -> None:
        raise CannotRunError("no Go")

    with pytest.raises(SystemExit, match=r"^parts: no Go$"):
        parts.install(one)


@pytest.mark.parametrize(("ci", "outcome"), [(None, pytest.skip.Exception), ("1", CannotRunError)], ids=["skipped", "failed with CI set"])
def test_a_test_installs_nothing(programs: Path, monkeypatch: pytest.MonkeyPatch, ci: str | None, outcome: type[BaseException]) -> None:
    """What it needs must be there before; outside of tests the same call installs."""
    monkeypatch.setenv("CI", ci) if ci else monkeypatch.delenv("CI", raising=False)
    write_program(programs / "go", "exit 0")

    with pytest.raises(outcome, match=r"fake-gcs-server@.* is not installed yet, which scripts/test does first"):
        parts.or_skip(emulators.fake_gcs)

    assert not parts.PARTS.exists()
    assert parts.or_skip(lambda: "there") == "there"
    assert emulators.fake_gcs().parent.is_dir()
