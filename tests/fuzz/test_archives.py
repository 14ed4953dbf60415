"""Archives of any kind: what comes out stays inside and within its bound, or nothing comes out, with words."""

from __future__ import annotations

import bz2
import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator

import pytest
from hypothesis import event
from hypothesis import strategies as st

from adapter.errors import DiskFull, InvalidModel
from tests.fuzz.fuzzing import check_words, fuzzed, mutated, texts
from tests.security.archive_rig import Ground, ground_in

BOUND_BYTES = 200_000
NAMES = ["config.pbtxt", "1/model.onnx", "1/", "a", "a/b", "../x", "/abs", "a/../../x", ".", "..", "", "x" * 255, "a//b", "\\x", "1/zeros"]
good_names = st.sampled_from(["config.pbtxt", "1/model.onnx", "1/zeros", "2/a", "a/b/c", "é", "x y", "long/" + "y" * 200])
names = good_names | good_names | good_names | st.sampled_from(NAMES) | texts.map(lambda name: name.encode("utf-8", "replace").decode())
TYPES = [tarfile.REGTYPE] * 24 + [
    tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, b"Z",
]  # fmt: skip
bodies = st.binary(max_size=600) | st.sampled_from([b"", bytes(3_000), bytes(60_000), bytes(BOUND_BYTES), bytes(BOUND_BYTES + 1)])
entries = st.lists(st.tuples(names, bodies, st.sampled_from(TYPES), names, st.integers(0, 0o7777)), max_size=5)


def a_tar(found: list[tuple[str, bytes, bytes, str, int]], form: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, errors="surrogateescape") as tar:
        for name, content, kind, link, mode in found:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, mode
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = link
            has_content = kind not in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
            info.size = len(content) if has_content else 0
            try:
                tar.addfile(info, io.BytesIO(content))
            except ValueError:  # USTAR cannot have such a name
                continue
    return out.getvalue()


def a_zip(found: list[tuple[str, bytes, bytes, str, int]], method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content, kind, _, mode in found:
            info = zipfile.ZipInfo(name or "x")
            info.external_attr = (mode | (0o120000 if kind == tarfile.SYMTYPE else 0)) << 16
            archive.writestr(info, content, method)
    return out.getvalue()


tars = st.builds(a_tar, entries, st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
zips = st.builds(a_zip, entries, st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2]))
packed = st.one_of(
    st.tuples(st.just("m.tar"), tars | mutated(tars)),
    st.tuples(st.just("m.tar.gz"), tars.map(lambda tar: gzip.compress(tar, 1, mtime=0))),
    st.tuples(st.just("m.tgz"), mutated(tars).map(lambda tar: gzip.compress(tar, 1, mtime=0))),
    st.tuples(st.just("m.tgz"), mutated(tars.map(lambda tar: gzip.compress(tar, 1, mtime=0)))),
    st.tuples(st.just("m.zip"), zips),
    st.tuples(st.just("m.zip"), mutated(zips)),
    st.tuples(st.sampled_from(["m.tar", "m.tgz", "m.zip"]), tars | zips | tars.map(bz2.compress)),
)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground_in(tmp_path_factory.mktemp("ground")) as made:
        yield made


@fuzzed(archive=packed)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_any_archive_stays_inside_and_within_its_bound(ground: Ground, archive: tuple[str, bytes]) -> None:
    """The ground looks beside the target, and at each file in it."""
    name, content = archive
    try:
        found = ground.unpacked(content, name, max_bytes=BOUND_BYTES)
    except (InvalidModel, DiskFull) as error:
        event(f"{name} refused")
        check_words(error)
        return
    event(f"{name} unpacked")
    assert sum(map(len, found.values())) <= BOUND_BYTES
    assert all(not path.startswith("/") and ".." not in path.split("/") for path in found)
