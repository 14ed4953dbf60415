"""
Puts the real Triton into `.parts/`: `python -m tests.real.install`.

A venv of its own (`.parts/triton`: its Python runs inside Triton), and a backend directory
(`.parts/backends`): the python backend with the stub of this Python's version, and an
`onnxruntime` backend of ours. Whether the machine can run all that is checked before anything is
started, because a stub without its libraries makes a load hang for ever.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tests.real.children import PARTS, PartError, bare_environment

VENV = PARTS / "triton"
BACKENDS = PARTS / "backends"
STAMP = PARTS / "stamp"
STUB = "triton_python_backend_stub"
ONNXRUNTIME_BACKEND = Path(__file__).with_name("onnxruntime_backend") / "model.py"
PINS = (
    "nvidia-pytriton==0.7.0",
    "onnxruntime==1.31.1",
    "numpy==1.26.4",
    "protobuf==6.33.6",
    "flatbuffers==25.12.19",
    "packaging==26.3",
)
"""Installed without their dependencies: of nvidia-pytriton only the server is used, not its Python package."""
PYTHONS = ((3, 11), (3, 12))
OLDEST_GLIBC = (2, 35)


class CannotRunError(PartError):
    """This machine cannot run the real Triton. One sentence."""


def site_packages() -> Path:
    """Where the venv keeps its packages."""
    return VENV / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def server() -> Path:
    """The `tritonserver` program."""
    return site_packages() / "pytriton" / "tritonserver" / "bin" / "tritonserver"


def environment() -> dict[str, str]:
    """What Triton and its stubs need to find their libraries and their Python."""
    env = bare_environment()
    env["PATH"] = f"{VENV / 'bin'}:{env.get('PATH', os.defpath)}"
    env["LD_LIBRARY_PATH"] = f"{site_packages() / 'nvidia_pytriton.libs'}:{sysconfig.get_config_var('LIBDIR')}"
    env["OMP_NUM_THREADS"] = env["OPENBLAS_NUM_THREADS"] = "1"
    return env


def install() -> None:
    """
    Install what is not there yet; instant when all is.

    Raises:
        CannotRunError: before anything was started.
    """
    _check_machine()
    PARTS.mkdir(exist_ok=True)
    with (PARTS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = _stamp()
        if STAMP.exists() and STAMP.read_text() == wanted:
            return
        STAMP.unlink(missing_ok=True)
        _make_venv()
        _lay_out_backends()
        _check_libraries()
        STAMP.write_text(wanted)


def _stamp() -> str:
    facts = (PARTS, sys.version, sys.base_prefix, platform.machine(), PINS, ONNXRUNTIME_BACKEND.read_text())
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _check_machine() -> None:
    for problem in _machine_problems():
        raise CannotRunError(problem)


def _machine_problems() -> Iterator[str]:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        yield f"the real Triton runs on Linux on x86_64 or aarch64, this is {sys.platform} on {platform.machine()}"
    name, version = platform.libc_ver()
    if name != "glibc" or tuple(int(n) for n in version.split(".")[:2]) < OLDEST_GLIBC:
        yield f"the real Triton needs glibc 2.35 or newer (Debian 12, Ubuntu 22.04), this is {name or 'another libc'} {version}"
    if sys.version_info[:2] not in PYTHONS:
        yield (
            f"the real Triton's python backend is tested with Python 3.11 and 3.12, this is {platform.python_version()}: "
            "PYTHON=python3.12 scripts/install"
        )
    if not os.access("/dev/shm", os.W_OK):
        yield "the real Triton's python backend needs /dev/shm, which is missing or cannot be written here"
    if shutil.which("ldd") is None:
        yield "the command ldd is missing: install your distribution's libc-bin"


def _make_venv() -> None:
    print(f"parts: {VENV.relative_to(PARTS.parent)} with Python {platform.python_version()}", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(VENV)], "make a venv")
    print(f"parts: {', '.join(PINS[:2])} (about 100 MB)", flush=True)
    _run([*pip_install(VENV / "bin" / "python"), "--no-deps", *PINS], "install Triton")


def pip_install(python: Path) -> list[str]:
    """The command, for wheels alone; options and packages follow."""
    return [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--only-binary=:all:"]


def _run(command: list[str], what: str) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    if subprocess.run(command, env=env, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        raise CannotRunError(f"could not {what}; the command was: {' '.join(command)}")


def _lay_out_backends() -> None:
    print("parts: backends python and onnxruntime", flush=True)
    shutil.rmtree(BACKENDS, ignore_errors=True)
    shipped = server().parents[1]
    stub = shipped / "python_backend_stubs" / f"{sys.version_info[0]}.{sys.version_info[1]}" / STUB
    if not stub.exists():
        raise CannotRunError(f"{PINS[0]} has no python backend stub for Python {sys.version_info[0]}.{sys.version_info[1]}")
    shutil.copytree(shipped / "backends" / "python", BACKENDS / "python", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(stub, BACKENDS / "python")
    (BACKENDS / "onnxruntime").mkdir()
    shutil.copy(ONNXRUNTIME_BACKEND, BACKENDS / "onnxruntime" / "model.py")
    for program in (server(), BACKENDS / "python" / STUB):
        program.chmod(0o755)


def _check_libraries() -> None:
    for binary in (server(), BACKENDS / "python" / "libtriton_python.so", BACKENDS / "python" / STUB):
        result = subprocess.run(["ldd", str(binary)], env=environment(), capture_output=True, text=True, check=False)
        missing = [line.split("=>")[0].strip() for line in (result.stdout + result.stderr).splitlines() if "not found" in line]
        if missing or result.returncode != 0:
            hint = "; this Python was built without its shared library" if any(name.startswith("libpython") for name in missing) else ""
            raise CannotRunError(f"{binary.name} cannot find {', '.join(missing) or 'its libraries'}{hint}")
    python = str(VENV / "bin" / "python")
    if subprocess.run([python, "-c", "import numpy, onnxruntime"], env=environment(), check=False).returncode != 0:
        raise CannotRunError("numpy or onnxruntime cannot be imported in Triton's venv")


def main() -> None:
    """Install, or say in one sentence why not."""
    try:
        install()
    except CannotRunError as error:
        sys.exit(f"parts: {error}")


if __name__ == "__main__":
    main()
