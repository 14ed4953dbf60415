"""
What the installers of `.parts/` share: a folder and a stamp for each program, and words for what is missing.

A pinned version is installed once, before the tests; after that its installer may go. Where something cannot be
had, the error says why in one line: outside of continuous integration the tests that need it are skipped.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

import pytest

from tests.real.children import PARTS
from tests.real.install import CannotRunError

GO = "Go 1.21 or newer (https://go.dev/doc/install)"
SHOWN_LINES = 4
STAMP = "stamp"

_Part = TypeVar("_Part")
_may_install = ContextVar("_may_install", default=True)


def require(program: str, version: str, remedy: str) -> None:
    """
    Raises:
        CannotRunError: the program is not on the PATH.
    """
    if shutil.which(program) is None:
        raise CannotRunError(f"{version} needs the command {program}, which is not on the PATH: install {remedy}")


def put(name: str, version: str, remedy: str, *commands: list[str], env: Mapping[str, str] | None = None) -> Path:
    """
    The part's folder below `.parts/`; the commands run in it, if this version is not there yet.

    Raises:
        CannotRunError: one of the commands is missing, or fails; or this is a test.
    """
    folder = PARTS / name
    if _is_there(name, version):
        return folder
    for command in commands:
        require(command[0], version, remedy)
    if not _may_install.get():
        raise CannotRunError(f"{version} is not installed yet, which scripts/test does first")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_there(name, version):
            return folder
        print(f"parts: {version}", flush=True)
        for command in commands:
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                raise CannotRunError(f"{version} could not be installed: {_reason(done)}")
        (folder / STAMP).write_text(version)
    return folder


def _is_there(name: str, version: str) -> bool:
    """Whether this version of the part is installed."""
    stamp = PARTS / name / STAMP
    return stamp.exists() and stamp.read_text() == version


def go_program(name: str, module: str, *flags: str) -> Path:
    """
    A Go program of a pinned version (`path@version`), built if it is not there yet; flags are those of `go install`.

    Raises:
        CannotRunError: no Go, or the module cannot be had.
    """
    version = " ".join((module, *flags))
    folder = put(name, version, GO, ["go", "install", *flags, module], env={"GOBIN": str(PARTS / name), "GOFLAGS": "-mod=mod"})
    return folder / module.partition("@")[0].rpartition("/")[2]


def install(*parts: Callable[[], object]) -> None:
    """Install what can be, and say why not; with CI set, what is missing ends the program."""
    for part in parts:
        try:
            part()
        except CannotRunError as error:
            if os.environ.get("CI"):
                sys.exit(f"parts: {error}")
            print(f"parts: without {part.__name__}: {error}", flush=True)


def or_skip(part: Callable[[], _Part]) -> _Part:
    """
    The part, for a test: one that is not there skips the test with the reason, and fails it with CI set.

    Nothing is installed: that takes longer than a test may.
    """
    token = _may_install.set(False)
    try:
        return part()
    except CannotRunError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    finally:
        _may_install.reset(token)


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """What the installer said, in one line; npm begins with the reason, Go with what it downloads."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip() and not line.startswith("go: downloading ")]
    return " / ".join(lines[:SHOWN_LINES]) or f"{done.args[0]} ended with code {done.returncode} and without a word"
