"""
What a stranger's archive can make the adapter hold: at most 64 MiB more than before, whatever the archive says.

Each archive is unpacked by a process of its own, under a limit on its address space, which tells its peak.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import resource
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapter.errors import InvalidModel
from adapter.storage.pull.archives import unpack
from adapter.volume.space import Space
from adapter.volume.volume import Volume
from adapter.workers import Stop
from tests.security import unmeasured
from tests.security.archive_forge import (
    BLOCK,
    LINK_MODE,
    ZERO_MEMBER,
    Tarred,
    Zipped,
    end_64,
    end_of_zip,
    forged_tar,
    forged_zip,
    long_name,
    pax,
)
from tests.security.archive_rig import MIB, quick_folder
from tests.security.chosen import long_but

MOST_MIB = 64
MANY = 600_000
OK = Tarred(b"ok", b"content")

HELD: list[bytes] = []


def measure() -> None:
    """Unpack; print by how many MiB the process grew at most, and what was said. Runs as a process of its own."""
    folder, archive = map(Path, sys.argv[1:])
    volume = Volume(folder / "models" / "_triton_models", folder / "models" / "_adapter")
    volume.claim()
    (folder / "target").mkdir()
    before = unmeasured.forget_peak()
    resource.setrlimit(resource.RLIMIT_AS, (int(unmeasured.mib("VmSize") + 512) * MIB,) * 2)
    try:
        with Space(volume.cache_dir, 0, refuses=False).reservation() as room:
            said: object = len(unpack(archive, name=archive.name, target=folder / "target", reserved=room, max_bytes=1 << 36, stop=Stop()))
    except InvalidModel as error:
        said = error.text
    print(int(unmeasured.mib("VmHWM") - before), said, sep="\n")


def unpacked_apart(folder: Path, archive: Path, code: str = "") -> tuple[int, str]:
    """The peak above the start in MiB, and what was said: the number of files, or why it was refused."""
    with quick_folder(folder) as place:
        done = unmeasured.run(
            "-c", f"from tests.security import test_archives_take_little_memory as here; {code}here.measure()", str(place), str(archive)
        )
    assert done.returncode == 0, done.stderr
    peak, said = done.stdout.splitlines()
    return int(peak), said


def packed_by(method: int) -> bytes:
    """96 MiB of zeros that one read would give, in a member that says 1 MiB."""
    if method == 12:
        data = bz2.compress(bytes(96 * MIB))
    else:
        filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 16}]
        properties = b"\x5d" + struct.pack("<I", 1 << 16)
        data = struct.pack("<2BH", 9, 4, len(properties)) + properties + lzma.compress(bytes(96 * MIB), lzma.FORMAT_RAW, filters=filters)
    return forged_zip([Zipped(b"a", method=method, packed=data, size_bytes=MIB, checksum=0)])


def zip_of_zeros(**fields: int) -> bytes:
    """A member of 320 MiB."""
    engine = zlib.compressobj(wbits=-15)
    part = engine.compress(bytes(16 * MIB)) + engine.flush(zlib.Z_FULL_FLUSH)
    return forged_zip([Zipped(b"a", packed=part * 20 + b"\3\0", checksum=0, **fields)])


def zip_of_many(*, says: int, long_end: bool) -> bytes:
    """A directory of 600,000 entries in 30 MiB, and an end that says how many there are."""
    local = Zipped(b"abcd", method=0).local()
    directory = Zipped(b"abcd", method=0).central(0) * MANY
    numbers = (says, len(directory), len(local))
    if not long_end:
        return local + directory + end_of_zip(*numbers)
    return local + directory + end_64(*numbers, len(local) + len(directory)) + end_of_zip(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)


def zip_of_names(count: int, length: int, extra: bytes = b"", **fields: object) -> bytes:
    """So many empty members with names of this length."""
    files, directory = bytearray(), bytearray()
    for number in range(count):
        name = (b"%06d/" % number + (b"n" * 200 + b"/") * (length // 201))[: length - 1] + b"f" if length > 9 else b"%06d" % number
        member = Zipped(name, method=0, extra=extra, **fields)
        directory += member.central(len(files))
        files += member.local()
    if count < 0xFFFF:
        return bytes(files + directory) + end_of_zip(count, len(directory), len(files))
    end = end_64(count, len(directory), len(files), len(files) + len(directory)) + end_of_zip(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    return bytes(files + directory) + end


def packed_tar(*entries: Tarred | bytes, end: bytes = bytes(2 * BLOCK)) -> bytes:
    return gzip.compress(forged_tar(entries, end=end), 1)


def huge(header: Tarred, size: int) -> bytes:
    """An archive whose one header says, and has, a content of this size: zeros."""
    return gzip.compress(bytes(header.but(size=b"%011o\0" % size))) + ZERO_MEMBER * 8


def keywords_for_all() -> Iterator[Tarred]:
    """Nine more keywords before each entry."""
    for number in range(300):
        yield pax(*((b"%d" % keyword, b"") for keyword in range(9 * number, 9 * number + 9)), kind=b"g")
        yield Tarred(b"%d" % number)


def zip_of_letters(end: bytes) -> bytes:
    """Names of 15 MiB, where one letter makes Python hold four bytes for each, and a NUL has `zipfile` hold them twice."""
    names = [b"%03d\xf0\x9f\x8c\x8d" % number + b"n" * 59_990 + end for number in range(260)]
    return forged_zip(Zipped(name, method=0, flags=0x800) for name in names)


DEEP = b"/".join([b"d" * 29] * 100)
BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "bzip2 in a zip": ("m.zip", lambda: packed_by(12), "packed with bzip2"),
    "lzma in a zip": ("m.zip", lambda: packed_by(14), "packed with lzma"),
    "deflated zeros": ("m.zip", lambda: zip_of_zeros(size_bytes=30 * MIB), "Bad CRC-32"),
    "deflated zeros that are announced": ("m.zip", lambda: zip_of_zeros(size_bytes=320 * MIB), "unpacks to more than"),
    "a link of zeros": ("m.zip", lambda: zip_of_zeros(mode=LINK_MODE, size_bytes=9), "Bad CRC-32"),
    "600,000 entries": ("m.zip", lambda: zip_of_many(says=MANY, long_end=True), "more than 16777216 bytes"),
    "600,000 entries that are one": ("m.zip", lambda: zip_of_many(says=1, long_end=False), "more than 16777216 bytes"),
    "600,000 entries that are 65,535": ("m.zip", lambda: zip_of_many(says=0xFFFF, long_end=False), "more than 16777216 bytes"),
    "a directory of 140 MiB": ("m.zip", lambda: zip_of_names(2200, 10, extra=bytes(65_000)), "more than 16777216 bytes"),
    "long names in a zip": ("m.zip", lambda: zip_of_names(2_000, 3_000), "paths of more than 32 MiB"),
}


def folders() -> bytes:
    """Files that need 100 folders each, of 30 letters."""
    return packed_tar(*(entry for number in range(300) for entry in (long_name(b"%06d/" % number + DEEP), Tarred(b"a"))))


def other_alphabet() -> Iterator[Tarred]:
    """One letter that takes four bytes makes Python hold four for each."""
    for number in range(1_000):
        yield long_name(b"%06d\xf0\x9f\x8c\x8d/" % number + (b"n" * 200 + b"/") * 13 + b"f")
        yield Tarred(b"a")


def links() -> bytes:
    """Links with long targets."""
    target = b"d/../" * 800 + b"ok"
    long = [entry for number in range(3_000) for entry in (pax((b"linkpath", target)), Tarred(b"l%d" % number, kind=b"2"))]
    return packed_tar(OK, *long)


def sparse(count: int) -> bytes:
    """A sparse file of so many parts, whose map is longer than all of them."""
    text = b"%d\n" % count + b"".join(b"%d\n1\n" % (2 * number) for number in range(count))
    content = text + bytes(-len(text) % BLOCK) + b"x" * count
    known = (
        (b"GNU.sparse.major", b"1"),
        (b"GNU.sparse.minor", b"0"),
        (b"GNU.sparse.name", b"s"),
        (b"GNU.sparse.realsize", b"%d" % (2 * count)),
    )
    return packed_tar(OK, pax(*known), Tarred(b"s", content))


BOMBS |= {
    "100,000 folders of their own": ("m.tgz", folders, "more than 100000 directories|more than 32 MiB"),
    "long names in a tar": (
        "m.tgz",
        lambda: packed_tar(*(e for n in range(2_000) for e in (long_name(b"%06d/" % n + (b"n" * 200 + b"/") * 14 + b"f"), Tarred(b"a")))),
        "paths of more than 32 MiB",
    ),
    "long names in another alphabet": ("m.tgz", lambda: packed_tar(*other_alphabet()), "paths of more than 32 MiB"),
    "links of long targets": ("m.tgz", links, "3001|more than 32 MiB"),
    "a long name of 128 MiB": ("m.tgz", lambda: huge(Tarred(b"a", kind=b"L"), 128 * MIB), "a header has more than"),
    "attributes of 128 MiB": ("m.tgz", lambda: huge(Tarred(b"a", kind=b"x"), 128 * MIB), "a header has more than"),
    "attributes for all of 128 MiB": ("m.tgz", lambda: huge(Tarred(b"a", kind=b"g"), 128 * MIB), "a header has more than"),
    "attributes of a million keywords": (
        "m.tgz",
        lambda: packed_tar(*[pax(*((b"GNU.sparse.%d" % n, b"") for n in range(40_000)), kind=b"g")] * 7, OK),
        "a header has more than",
    ),
    "a megabyte of names, again and again": (
        "m.tgz",
        lambda: packed_tar(*[long_name(b"n" * 1_000_000), OK] * 60),
        "a header has more than",
    ),
    "megabytes of attributes for each entry": (
        "m.tgz",
        lambda: packed_tar(*(entry for n in range(20) for entry in (pax((b"comment", b"n" * 1_000_000)), Tarred(b"%d" % n)))),
        "a header has more than",
    ),
    "a map of 300,000 parts": ("m.tgz", lambda: sparse(300_000), "more headers than content"),
    "a map of 60,000 parts": ("m.tgz", lambda: sparse(60_000), "more than 16384 parts"),
    "a map of 60,000 parts in a header": (
        "m.tgz",
        lambda: packed_tar(OK, pax((b"GNU.sparse.size", b"9"), (b"GNU.sparse.map", b"0,0," * 60_000 + b"0,0")), Tarred(b"s")),
        "more than 16384 parts",
    ),
    "records that overlap": ("m.tgz", lambda: packed_tar(OK, Tarred(b"x", b"5 xx" * 60_000 + b"=", b"x"), OK), "header is damaged"),
    "records of digits": ("m.tgz", lambda: packed_tar(OK, pax((b"comment", b"9" * 250_000)), OK), "'ok' twice"),
    "keywords for all": ("m.tgz", lambda: packed_tar(*keywords_for_all()), "300"),
    "megabytes of attributes for all": (
        "m.tgz",
        lambda: packed_tar(*(e for n in range(30) for e in (pax((b"%d" % n, b"n" * 200_000), kind=b"g"), Tarred(b"%d" % n)))),
        "30",
    ),
    "attributes for each entry": (
        "m.tgz",
        lambda: packed_tar(*(e for n in range(90) for e in (pax((b"comment", b"n" * 250_000)), Tarred(b"%d" % n)))),
        "more headers than content",
    ),
    "66,000 entries, more than a zip without Zip64 can have": ("m.zip", lambda: zip_of_names(66_000, 9), "66000"),
    "130,000 entries": ("m.zip", lambda: zip_of_names(130_000, 9), "more than 100000 entries"),
    "names of a zip in another alphabet": ("m.zip", lambda: zip_of_letters(b""), "bytes of names"),
    "names of a zip that a NUL ends": ("m.zip", lambda: zip_of_letters(b"\0"), "NUL byte"),
    "zeros behind the end": ("m.tgz", lambda: packed_tar(OK) + ZERO_MEMBER * 64, "goes on without end"),
    "zeros instead of headers": ("m.tgz", lambda: ZERO_MEMBER * 64, "goes on without end"),
    "zeros as a file": ("m.tgz", lambda: huge(Tarred(b"a"), 8 * 1024 * MIB - 1), "unpacks to more than"),
    "a name in gzip's header": (
        "m.tgz",
        lambda: b"\x1f\x8b\x08\x08\0\0\0\0\0\xff" + b"n" * 80 * MIB + b"\0" + packed_tar(OK)[10:],
        "a name or the padding of gzip has no end",
    ),
    "members of nothing": ("m.tgz", lambda: gzip.compress(b"") * 100_000 + packed_tar(OK), "1"),
}


@pytest.mark.parametrize("what", long_but(BOMBS, "a long name of 128 MiB", "deflated zeros", "records of digits", "zeros behind the end"))
def test_a_bomb_takes_little_memory(tmp_path: Path, what: str) -> None:
    """Refused with the limit that it met, or served when it holds little after all."""
    name, make, words = BOMBS[what]
    (tmp_path / name).write_bytes(make())
    peak_mib, said = unpacked_apart(tmp_path, tmp_path / name)
    print(f"peak: {what}: {peak_mib} MiB, {(tmp_path / name).stat().st_size} bytes")
    assert peak_mib <= MOST_MIB
    assert any(said == word if word.isdigit() else word in said for word in words.split("|")), said


def test_the_measure_sees_what_is_held(tmp_path: Path) -> None:
    """Otherwise every bomb would seem small: a process that holds 100 MiB says so."""
    holding = "real = here.unpack; here.unpack = lambda *a, **k: here.HELD.append(bytes(range(256)) * (100 << 12)) or real(*a, **k); "
    (tmp_path / "m.tar").write_bytes(forged_tar([OK]))
    peak, said = unpacked_apart(tmp_path, tmp_path / "m.tar", holding)
    assert peak > MOST_MIB and said == "1"
