"""
Builds the image for real, without Docker: `python -m tests.image.build`. As root; needs buildah and debootstrap, and takes minutes.

No registry of images is needed: the base is Debian 12 by debootstrap, with this machine's Python in /usr/local, as the official
image of Python has it. Both variants are built from deploy/Dockerfile, looked through, and started: read-only, as process 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts import lock
from tests.image.rootfs import inside, megabytes, unwanted
from tests.real.children import TOP, Child, PartError, bare_environment
from tests.real.ports import free_ports
from tests.real.s3 import S3Server
from tests.real.triton import Triton

LIBRARIES = "ca-certificates,netbase,tzdata,libssl3,libffi8,libsqlite3-0,libbz2-1.0,liblzma5,libreadline8,libncursesw6,libuuid1,zlib1g"
NEEDED = ("buildah", "debootstrap", "unshare", "setpriv", "tar")
USERS = {"1000:0": "the image's own", "3141592:0": "as OpenShift gives it", "3141592:2718281": "any user"}
COMPOSE = TOP / "deploy" / "compose"
AUTHORITIES = "import os, ssl; print(len(os.listdir(ssl.get_default_verify_paths().capath)))"
PIP_CONF = Path("/etc/pip.conf")


def main() -> int:
    """Exit code 0 when everything holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.image.build", description="Build and try the image without Docker.")
    parser.add_argument("--python", type=Path, default=Path(sys.base_prefix), help="folder with a Python 3.11 or 3.12 (default: this one)")
    parser.add_argument("--suite", default="bookworm", help="of Debian (default: %(default)s)")
    chosen = parser.parse_args()
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        sys.exit(f"image: needs root{''.join(f', {name}' for name in missing)}; Debian, Ubuntu: apt install buildah debootstrap")
    if chosen.python == Path("/usr"):
        sys.exit("image: the system's own Python cannot be moved into another root; name another: --python FOLDER")
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        try:
            _base(folder, chosen.python, chosen.suite)
            wrong = [line for variant in lock.VARIANTS for line in _variant(folder, variant)]
        except subprocess.CalledProcessError as error:
            sys.exit(f"image: {' '.join(map(str, error.cmd))[:200]} ended with code {error.returncode}:\n{(error.stderr or '')[-2000:]}")
    print("\n".join(wrong) or "everything holds")
    return 1 if wrong else 0


def _run(*command: str | Path) -> str:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout.strip()


def _buildah(folder: Path, *words: str | Path) -> str:
    word, *rest = words
    isolation = ("--isolation", "chroot") if word in ("bud", "from") else ()
    return _run("buildah", "--root", folder / "store", "--runroot", folder / "run", word, *isolation, *rest)


def _base(folder: Path, python: Path, suite: str) -> None:
    print(f"base: Debian {suite} with Python of {python}", flush=True)
    root = folder / "base"
    _run("debootstrap", "--variant=minbase", f"--include={LIBRARIES}", suite, root)
    shutil.rmtree(root / "var/lib/apt/lists")
    for file in (root / "var/cache/apt/archives").glob("*.deb"):
        file.unlink()
    unwanted_here = shutil.ignore_patterns(
        "__pycache__", "test", "tests", "idle_test", "site-packages", "libpython*.a", "config-*", "share"
    )
    shutil.copytree(python, root / "usr/local", symlinks=True, ignore=unwanted_here, dirs_exist_ok=True)
    for path in (root / "usr/local/bin").glob("pip*"):
        path.unlink()
    shutil.copyfile("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs/ca-certificates.crt")
    _run("chroot", root, "ldconfig")
    _run("chroot", root, "python3", "-m", "ensurepip")
    _run("tar", "-C", root, "-cf", folder / "base.tar", ".")
    container = _buildah(folder, "from", "scratch")
    _buildah(folder, "add", "--quiet", container, folder / "base.tar", "/")
    _buildah(folder, "config", "--env", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "--env", "LANG=C.UTF-8", container)
    _buildah(folder, "commit", "--quiet", "--rm", container, "localhost/base")


def _variant(folder: Path, variant: str) -> Iterator[str]:
    """What is wrong with one variant."""
    secret = ["--secret", f"id=pip,src={PIP_CONF}"] if PIP_CONF.exists() else []
    arguments = [word for value in ("PYTHON_IMAGE=localhost/base", f"VARIANT={variant}") for word in ("--build-arg", value)]
    _buildah(
        folder, "bud", "--format", "docker", "--layers", "--network", "host", *secret, *arguments, "-f", TOP / "deploy/Dockerfile",
        "-t", f"adapter:{variant}", TOP,
    )  # fmt: skip
    with _mounted(folder, variant) as root:
        base = megabytes(folder / "base")
        caches = list((root / "usr/local/lib").rglob("__pycache__"))
        print(f"{variant}: {megabytes(root):.0f} MB; base {base:.0f}, /opt/adapter {megabytes(root / 'opt/adapter'):.0f},", end=" ")
        print(f"standard library compiled {megabytes(*caches):.0f}", flush=True)
        yield from (f"{variant}: {line}" for line in unwanted(root))
        if not (root / "usr/share/sbom/modelmesh-triton-adapter.cdx.json").stat().st_size:
            yield f"{variant}: no SBOM"
        if int(_run("chroot", root, "python3", "-c", AUTHORITIES)) < 100:
            yield f"{variant}: OpenSSL finds no authorities"
        for user, meaning in USERS.items():
            for problem in _started(root, folder, user):
                yield f"{variant}: {user} ({meaning}): {problem}"
        yield from (f"{variant}: {problem}" for problem in _loaded(root, folder))


@contextmanager
def _mounted(folder: Path, variant: str) -> Iterator[Path]:
    container = _buildah(folder, "from", f"localhost/adapter:{variant}")
    try:
        yield Path(_buildah(folder, "mount", container))
    finally:
        _buildah(folder, "rm", container)


def _started(root: Path, folder: Path, user: str) -> Iterator[str]:
    volume = folder / f"volume-{user.replace(':', '-')}"
    volume.mkdir(exist_ok=True)
    volume.chmod(0o777)
    port, metrics = map(str, free_ports(2))
    settings = {"CONTAINER_MEM_REQ_BYTES": "2Gi", "ROOT_MODEL_DIR": str(volume), "ADAPTER_PORT": port, "METRICS_PORT": metrics}

    def done(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(inside(root, volume, user, words, settings), capture_output=True, text=True, check=False)

    adapter = Child("image", inside(root, volume, user, ["/opt/app/triton-adapter"], settings), env=bare_environment())
    try:
        adapter.wait_until(lambda: done("modelmesh-triton-adapter", "probe").returncode == 0, "alive", 30)
        if done("python", "-m", "adapter", "probe").stdout != "alive\n":
            yield "python -m adapter probe does not work"
        if done("touch", "/tmp/x").returncode == 0 or done("touch", "/opt/adapter/x").returncode == 0:
            yield "the root is not read-only: nothing was shown"
        if (puller := done("/opt/app/puller")).returncode != 1 or len(puller.stderr.splitlines()) != 1:
            yield f"/opt/app/puller: {puller.stderr!r}"
        (first,) = Path(f"/proc/{adapter.pid}/task/{adapter.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        if (code := adapter.wait(30)) != 0:
            yield f"SIGTERM ends it with code {code}"
    except PartError as error:
        yield str(error)
    finally:
        adapter.kill()
    if found := re.search(r"Traceback|Read-only|Permission denied|KeyError", adapter.log_text()):
        yield f"its log says {found[0]}: {adapter.log_path}"


def _loaded(root: Path, folder: Path) -> Iterator[str]:
    """The example of compose comes from S3 through the image's adapter into the real Triton; the verb `load` runs in the image, too."""
    volume = folder / "volume-load"
    shutil.rmtree(volume, ignore_errors=True)
    for path in (volume, volume / "_triton_models", volume / "config"):
        path.mkdir()
        path.chmod(0o777)
    with S3Server() as s3, Triton(volume / "_triton_models", completes=True) as triton:
        s3.put("models", "affine/model.onnx", (COMPOSE / "buckets/models/affine/model.onnx").read_bytes())
        (volume / "config" / "laptop").write_text(json.dumps(s3.storage_config("models")))
        port, metrics = map(str, free_ports(2))
        settings = {"CONTAINER_MEM_REQ_BYTES": "2Gi", "ROOT_MODEL_DIR": str(volume), "ADAPTER_PORT": port, "METRICS_PORT": metrics}
        settings |= {"RUNTIME_ENDPOINT": triton.grpc_target, "STORAGE_CONFIG_DIR": str(volume / "config")}
        words = ["modelmesh-triton-adapter", "load", "affine", "--storage-key=laptop", "--type=onnx"]
        adapter = Child("image", inside(root, volume, "1000:0", ["modelmesh-triton-adapter", "serve"], settings), env=bare_environment())
        try:
            adapter.wait_until(lambda: "triton.answered" in adapter.log_text(), "with Triton", 30)
            load = inside(root, volume, "1000:0", [*words, "--infer=x=1,2,3"], settings)
            done = subprocess.run(load, capture_output=True, text=True, check=False)
            print(f"  {' / '.join((done.stdout + done.stderr).splitlines())}", flush=True)
            if not done.stdout.endswith("y [3] = [3.0, 5.0, 7.0]\n"):
                yield f"the example does not answer: {done.stdout}{done.stderr}"
        except PartError as error:
            yield str(error)
        finally:
            adapter.kill()


if __name__ == "__main__":
    sys.exit(main())
