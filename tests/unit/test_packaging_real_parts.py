"""Where the real Triton cannot run, the installation says why, in one sentence, before anything is started."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.real import install


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Any program that is run, and any folder that is made, fails the test."""

    def refuse(*words: object, **_: object) -> None:
        raise AssertionError(f"was run: {words}")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(install, "PARTS", tmp_path / "must-not-appear")


@pytest.mark.parametrize(
    ("module", "name", "value", "words"),
    [
        (platform, "machine", lambda: "riscv64", ["x86_64 or aarch64", "riscv64"]),
        (platform, "libc_ver", lambda: ("glibc", "2.31"), ["glibc 2.35", "glibc 2.31"]),
        (platform, "libc_ver", lambda: ("", ""), ["glibc 2.35", "another libc"]),
        (install.sys, "version_info", (3, 13, 0), ["3.11 and 3.12", "PYTHON="]),
        (os, "access", lambda *_: False, ["/dev/shm"]),
        (shutil, "which", lambda *_: None, ["ldd", "libc-bin"]),
    ],
    ids=["machine", "old glibc", "no glibc", "python", "no shared memory", "no ldd"],
)
def test_a_machine_that_cannot_run_it(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, value: Any, words: list[str]) -> None:
    monkeypatch.setattr(module, name, value)

    with pytest.raises(SystemExit) as ended:
        install.main()

    assert isinstance(ended.value.code, str) and "\n" not in ended.value.code
    assert all(word in ended.value.code for word in words)
    assert not install.PARTS.exists()


LDD = "\tlibc.so.6 => /lib/libc.so.6 (0x1)\n\t{missing} => not found\n"


@pytest.mark.parametrize(
    ("missing", "hint"),
    [("libpython3.12.so.1.0", "built without its shared library"), ("libstdc++.so.6", "")],
    ids=["libpython", "another"],
)
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, missing: str, hint: str) -> None:
    """A stub without its libraries would hang the first load for ever."""
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, LDD.format(missing=missing), ""))

    with pytest.raises(install.CannotRunError) as refused:
        install._check_libraries()

    assert missing in str(refused.value)
    assert hint in str(refused.value)


def test_the_environment_of_triton_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Python must find its own venv; a proxy or a library path of ours must not reach it."""
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "LD_PRELOAD", "http_proxy", "HTTPS_PROXY", "AWS_PROFILE"):
        monkeypatch.setenv(name, "ours")
    monkeypatch.setenv("KEPT", "yes")

    env = install.environment()

    assert "ours" not in env.values()
    assert env["KEPT"] == "yes"
    assert env["PATH"].split(":")[0] == str(install.VENV / "bin")
