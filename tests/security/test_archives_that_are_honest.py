"""Archives as honest packers write them are served exactly as they were packed."""

from __future__ import annotations

import gzip
import io
import random
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.security.archive_rig import Ground

LONG = "/".join(["a directory of a long name"] * 12) + "/weights.bin"
FILES = {
    "config.pbtxt": b"platform: x",
    "1/model.onnx": random.Random(8).randbytes(700_000),
    "1/zeros": bytes(300_000),
    "1/empty": b"",
    "größe/日本.txt": b"letters",
    LONG: b"a path of more than 256 bytes",
}
SHORT = {path: content for path, content in FILES.items() if path.isascii() and path != LONG}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path, content in FILES.items():
        (tmp_path / "model" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / path).write_bytes(content)
    return tmp_path / "model"


class _Pipe(io.RawIOBase):
    """A place that cannot go back, as a network's."""

    def __init__(self) -> None:
        self.content = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        self.content += memoryview(data)  # type: ignore[arg-type]
        return len(memoryview(data))  # type: ignore[arg-type]


def a_zip(*, method: int = zipfile.ZIP_DEFLATED, wide: bool = False, streamed: bool = False, comment: bytes = b"") -> bytes:
    out = _Pipe() if streamed else io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:  # type: ignore[arg-type]
        for path, content in FILES.items():
            with archive.open(path, "w", force_zip64=wide) as member:
                member.write(content)
        archive.mkdir("an empty directory")
        archive.comment = comment
    return bytes(out.content) if isinstance(out, _Pipe) else out.getvalue()


ZIPS: dict[str, Callable[[], bytes]] = {
    "stored": lambda: a_zip(method=zipfile.ZIP_STORED),
    "deflated": a_zip,
    "Zip64": lambda: a_zip(wide=True),
    "streamed": lambda: a_zip(streamed=True),
    "streamed and stored": lambda: a_zip(streamed=True, method=zipfile.ZIP_STORED),
    "a comment": lambda: a_zip(comment=b"comment " * 8000),
    "a program in front": lambda: b"#!/bin/sh\nexec unzip $0\n" + bytes(5000) + a_zip(),
    "Zip64 and a program in front": lambda: b"#!/bin/sh\n" + a_zip(wide=True),
}


@pytest.mark.parametrize("what", ZIPS)
def test_a_zip_is_served(ground: Ground, what: str) -> None:
    """Python's own, in every way that Python can write."""
    assert ground.unpacked(ZIPS[what](), "m.zip") == FILES


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_tar_is_served(ground: Ground, folder: Path, form: int) -> None:
    """Python's own, plain, padded and packed, as one member of gzip or two, with zeros behind."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        tar.add(folder, ".")
    content = out.getvalue()
    assert ground.unpacked(content, "m.tar") == FILES
    half = len(content) // 2
    for packed in (
        gzip.compress(content),
        gzip.compress(content[:half]) + gzip.compress(content[half:]),
        gzip.compress(content) + bytes(999),
    ):
        assert ground.unpacked(packed, "m.tgz") == FILES


TARS = {
    "gnu": (["--format=gnu"], FILES),
    "oldgnu": (["--format=oldgnu"], FILES),
    "pax": (["--format=pax"], FILES),
    "ustar": (["--format=ustar"], SHORT),
    "v7": (["--format=v7"], SHORT),
    "GNU's sparse": (["--format=gnu", "--sparse"], FILES),
    "sparse 0.0": (["--format=pax", "--sparse", "--sparse-version=0.0"], FILES),
    "sparse 0.1": (["--format=pax", "--sparse", "--sparse-version=0.1"], FILES),
    "sparse 1.0": (["--format=pax", "--sparse", "--sparse-version=1.0"], FILES),
}


@pytest.mark.skipif(shutil.which("tar") is None, reason="there is no tar")
@pytest.mark.parametrize("what", TARS)
def test_what_gnu_tar_makes_is_served(ground: Ground, folder: Path, tmp_path: Path, what: str) -> None:
    """All of its formats; a file with holes in those that know them."""
    options, files = TARS[what]
    made = tmp_path / "made.tar"
    expected = dict(files)
    if "--sparse" in options:
        with (folder / "holes").open("wb") as file:
            for offset in range(0, 40 * 65_536, 65_536):
                file.seek(offset)
                file.write(b"part")
            file.truncate(4_000_000)
        expected["holes"] = (folder / "holes").read_bytes()
    done = subprocess.run(["tar", "-C", folder, *options, "-cf", made, *expected], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this tar is another one: {done.stderr}")
    assert ground.unpacked(made.read_bytes(), "m.tar") == expected
    assert ground.unpacked(gzip.compress(made.read_bytes()), "m.tgz") == expected


@pytest.mark.skipif(shutil.which("zip") is None, reason="there is no zip")
@pytest.mark.parametrize("options", [["-r"], ["-r", "-0"], ["-r", "-fz"], ["-r", "-fd"], ["-r", "-y"]], ids=" ".join)
def test_what_zip_makes_is_served(ground: Ground, folder: Path, tmp_path: Path, options: list[str]) -> None:
    """Info-ZIP's, with Zip64 and descriptors where they are asked for, and as a pipe writes it."""
    subprocess.run(["zip", "-q", *options, tmp_path / "made.zip", "."], cwd=folder, check=True)
    assert ground.unpacked((tmp_path / "made.zip").read_bytes(), "m.zip") == FILES
    if "-fz" in options:
        return  # into a pipe zip writes an archive whose directory begins at 4 GiB, which `unzip` refuses too
    piped = subprocess.run(["zip", "-q", *options, "-", "."], cwd=folder, check=True, capture_output=True).stdout
    assert ground.unpacked(piped, "m.zip") == FILES
