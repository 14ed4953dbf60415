"""Where an emulator of a cloud store cannot be installed, the skip of its tests says what is missing and what helps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real import emulators
from tests.real.install import CannotRunError


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder on the PATH, empty; nothing is installed yet."""
    monkeypatch.setattr(emulators, "PARTS", tmp_path / "parts")
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


def test_without_go_it_says_to_install_go(programs: Path) -> None:
    assert all(word in words_of(emulators.fake_gcs) for word in ("fake-gcs-server", "command go,", "install Go 1.21", "https://"))


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
    (emulators.PARTS / "azurite").mkdir(parents=True)
    (emulators.PARTS / "azurite" / "stamp").write_text(emulators.AZURITE)

    assert emulators.azurite().is_relative_to(emulators.PARTS)
