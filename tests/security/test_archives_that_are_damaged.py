"""Archives that are cut anywhere, or have bytes that changed: refused in one line, or served exactly as they were packed."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import zipfile

import pytest

from tests.security.archive_forge import Tarred, forged_tar, pax
from tests.security.archive_rig import Ground
from tests.security.chosen import long_but

FILES = {"config.pbtxt": b"platform: x", "1/model.onnx": random.Random(8).randbytes(300), "1/zeros": bytes(700)}


def a_tar(format: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, content in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def a_zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in FILES.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED if name.endswith("zeros") else zipfile.ZIP_STORED)
    return out.getvalue()


def a_sparse_tar() -> bytes:
    version = (b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0")
    known = *version, (b"GNU.sparse.name", b"config.pbtxt"), (b"GNU.sparse.realsize", b"11")
    content = b"1\n0\n11\n" + bytes(505) + FILES["config.pbtxt"]
    rest = [Tarred(name.encode(), content) for name, content in FILES.items() if name != "config.pbtxt"]
    return forged_tar([pax(*known), Tarred(b"x", content), *rest])


END = 1024
"""Two blocks of zeros: the first is the end mark."""
PADDED = len(forged_tar([Tarred(name.encode(), content) for name, content in FILES.items()]))
ARCHIVES = {
    "m.tar": a_tar()[:PADDED],
    "m.tar.gz": gzip.compress(a_tar(), mtime=0),
    "pax.tgz": gzip.compress(a_tar(tarfile.PAX_FORMAT), mtime=0),
    "sparse.tgz": gzip.compress(a_sparse_tar(), mtime=0),
    "m.zip": a_zip(),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_archives_are_whole_before(ground: Ground, name: str) -> None:
    """Otherwise the other tests prove nothing."""
    assert ground.unpacked(ARCHIVES[name], name) == FILES


@pytest.mark.parametrize("step", long_but((1, 11), 11))
@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_is_cut_anywhere_is_refused(ground: Ground, name: str, step: int) -> None:
    """Also between two entries of a tar, where a model of fewer files would begin to serve."""
    content = ARCHIVES[name]
    needed = len(content) - END + 512 if name == "m.tar" else len(content)
    for length in range(0, needed, step if len(content) < 1500 else 7 * step):
        ground.refused(content[:length], name)
    for length in range(needed - 20, needed):
        ground.refused(content[:length], name)


@pytest.mark.parametrize("step", long_but((1, 7), 7))
@pytest.mark.parametrize("name", [name for name in ARCHIVES if name != "m.tar"])
def test_a_byte_that_changed_is_noticed_or_means_nothing(ground: Ground, name: str, step: int) -> None:
    """Each byte in turn, or one of some. Zip and gzip have checksums; dates and makers may be anything."""
    content, dice = ARCHIVES[name], random.Random(1)
    refused = 0
    for position in range(0, len(content), step):
        spoilt = bytearray(content)
        spoilt[position] ^= 1 << dice.randrange(8)
        refused += ground.refused_or(FILES, bytes(spoilt), name)
    assert refused > len(content) / step / 3
