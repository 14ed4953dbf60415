"""Zip archives whose fields lie: one directory or none, one meaning of each member; what other packers write is served."""

from __future__ import annotations

import stat
import struct

import pytest

from tests.security.archive_forge import LINK_MODE, Zipped, end_64, end_of_zip, forged_zip, parts_of_zip
from tests.security.archive_rig import Ground

ODD = {
    "trailing slash of a file": Zipped(b"a/", b"x"),
    "a directory of a file's kind": Zipped(b"a/", b"", mode=stat.S_IFREG | 0o644),
    "a directory with content": Zipped(b"a", b"x", mode=stat.S_IFDIR | 0o755),
    "a pipe": Zipped(b"a", mode=stat.S_IFIFO),
    "a device": Zipped(b"a", mode=stat.S_IFCHR | 0o644),
    "a block device": Zipped(b"a", mode=stat.S_IFBLK | 0o644),
    "a socket": Zipped(b"a", mode=stat.S_IFSOCK),
    "no kind that exists": Zipped(b"a", mode=0xF000),
    "a link of a length without end": Zipped(b"a", b"b/" * 2049, mode=LINK_MODE),
    "a link that is not UTF-8": Zipped(b"a", b"\xff", mode=LINK_MODE),
    "a link that leads out": Zipped(b"a", b"../outside", mode=LINK_MODE),
    "a link to nothing": Zipped(b"a", b"", mode=LINK_MODE),
    "encrypted": Zipped(b"a", b"x", flags=1),
    "strongly encrypted": Zipped(b"a", b"x", flags=0x40),
    "a hidden directory": Zipped(b"a", b"x", flags=0x2000),
    "patches": Zipped(b"a", b"x", flags=0x20),
    "another disk": Zipped(b"a", b"x", disk=3),
    "shorter than it says": Zipped(b"a", b"x", size_bytes=5),
    "longer than it says": Zipped(b"a", b"xyz", size_bytes=1),
    "nothing, it says": Zipped(b"a", b"xyz", size_bytes=0),
    "stored, and longer": Zipped(b"a", b"xyz", method=0, size_bytes=1),
    "gigabytes, it says": Zipped(b"a", b"x", size_bytes=0xFFFFFFFE),
    "another checksum": Zipped(b"a", b"x", checksum=1),
    "packed bytes without end": Zipped(b"a", b"x", packed_bytes=0xFFFFFFFE),
    "fewer packed bytes": Zipped(b"a", b"x" * 100, packed_bytes=2),
    "no packed bytes": Zipped(b"a", b"x", packed_bytes=0),
    "bytes that are not deflated": Zipped(b"a", b"x", packed=b"\xff\xff\xff"),
    "a header elsewhere": Zipped(b"a", b"x", start=1),
    "a header behind the end": Zipped(b"a", b"x", start=0xFFFFFFF0),
    "no header": Zipped(b"a", b"x", local_mark=b"PK\1\2"),
    "another name in the header": Zipped(b"a", b"x", local_name=b"b"),
    "a longer name in the header": Zipped(b"a", b"x", local_name=b"a/../../outside"),
    "another method in the header": Zipped(b"a", b"x", local_method=0),
    "content behind the end": Zipped(b"a", b"x", local_extra=bytes(60), packed_bytes=60),
    "a field of Zip64 that is missing": Zipped(b"a", b"x", size_bytes=0xFFFFFFFF),
    "a field of Zip64 that is short": Zipped(b"a", b"x", size_bytes=0xFFFFFFFF, extra=struct.pack("<2HI", 1, 4, 1)),
    "exabytes, it says": Zipped(b"a", b"x", size_bytes=0xFFFFFFFF, extra=struct.pack("<2HQ", 1, 8, 2**64 - 1)),
    "an extra field that goes on": Zipped(b"a", b"x", extra=struct.pack("<2H", 9, 100)),
}


@pytest.mark.parametrize("what", ODD)
def test_a_member_that_lies_refuses_the_zip(ground: Ground, what: str) -> None:
    """Alone, and behind an honest one."""
    ground.refused(forged_zip([ODD[what]]), "m.zip")
    ground.refused(forged_zip([Zipped(b"ok", b"content"), ODD[what]]), "m.zip")


@pytest.mark.parametrize(("method", "name"), [(12, "bzip2"), (14, "lzma"), (9, "deflate64"), (93, "zstd"), (95, "xz"), (77, "method 77")])
def test_other_methods_are_refused_by_name(ground: Ground, method: int, name: str) -> None:
    """Damaged or not: nothing of them is looked at. The text says what to do."""
    text = ground.refused(forged_zip([Zipped(b"a", b"damaged", method=method)]), "m.zip")
    assert f"'a', which is packed with {name}; " in text and "`zip -r`" in text


def test_members_that_share_bytes_refuse_the_zip(ground: Ground) -> None:
    """The same content named a thousand times, or quoted by the next header, is no way round the archive's own length."""
    files, _, _ = parts_of_zip([Zipped(b"0", bytes(100_000))])
    directory = b"".join(Zipped(b"0", bytes(100_000)).central(0) for _ in range(100))
    assert "overlap" in ground.refused(files + directory + end_of_zip(100, len(directory), len(files)), "m.zip")
    inner = Zipped(b"b", b"x" * 1000)
    outer = Zipped(b"a", inner.local(), method=0)
    directory = outer.central(0) + inner.central(len(outer.local()) - len(inner.local()))
    assert "overlap" in ground.refused(outer.local() + directory + end_of_zip(2, len(directory), len(outer.local())), "m.zip")


def zip_ends(*, one_reading: bool = False) -> dict[str, bytes]:
    files, directory, _ = parts_of_zip([Zipped(b"a", b"x")])
    size, start = len(directory), len(files)
    body, honest = files + directory, end_of_zip(1, size, start)
    other = forged_zip([Zipped(b"evil", b"x")])
    at = len(body)
    fake_comment = other[-22:]
    saturated = end_of_zip(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    if one_reading:
        return {
            "something in front": b"#!/bin/sh\n" + body + honest,
            "Zip64 that says other numbers": body + end_64(2, size, start, at) + honest,
            "Zip64 elsewhere": body + end_64(1, size, start, 0) + saturated,
            "Zip64 behind itself": body + end_64(1, size, start, 2**64 - 1) + saturated,
            "Zip64 with a length that lies": body + end_64(1, size, start, at, rest=2**63) + saturated,
            "more behind the packed bytes": forged_zip([Zipped(b"a", b"x", packed=Zipped(b"", b"x").data + b"more")]),
            "an archive in front": other + body + honest,
        }
    return {
        "two directories": body + end_of_zip(1, size, start, comment=other),
        "two ends": body + end_of_zip(1, size, start, comment=fake_comment),
        "something behind": body + honest + b"\n",
        "something between": body + b"gap" + honest,
        "a comment that is cut": body + end_of_zip(1, size, start, comment=b"comment")[:-1],
        "more entries than there are": body + end_of_zip(2, size, start),
        "fewer entries than there are": body + end_of_zip(0, size, start),
        "a part": body + end_of_zip(1, size, start, disk=1),
        "entries elsewhere": body + end_of_zip(1, size, start, here=0),
        "a directory that is longer": body + end_of_zip(1, size + 1, start),
        "a directory that is shorter": files + directory + b"x" + end_of_zip(1, size + 1, start),
        "Zip64 with something between": body + end_64(1, size, start, at)[:56] + b"gap" + end_64(1, size, start, at)[56:] + saturated,
        "Zip64 of many parts": body + end_64(1, size, start, at, disks=2) + saturated,
        "no Zip64 where it is needed": body + saturated,
        "numbers without end": body + end_64(2**64 - 1, 2**64 - 1, 2**64 - 1, at) + saturated,
    }


@pytest.mark.parametrize("what", zip_ends())
def test_a_zip_has_one_directory_or_none(ground: Ground, what: str) -> None:
    """The one that was measured is the one that is read."""
    ground.refused(zip_ends()[what], "m.zip")


@pytest.mark.parametrize("what", zip_ends(one_reading=True))
def test_a_zip_that_has_one_reading_is_served_as_it_is(ground: Ground, what: str) -> None:
    """What is not read may be anything; what stands in front of an archive is another file's."""
    is_refused = ground.refused_or({"a": b"x"}, zip_ends(one_reading=True)[what], "m.zip")
    assert not is_refused or "front" not in what


def test_honest_zips_of_other_packers_are_served(ground: Ground) -> None:
    """Zip64 with and without need, comments, descriptors, padding, names in the alphabet of the first PCs."""
    numbers_64 = struct.pack("<2H2Q", 1, 16, 1, len(Zipped(b"", b"x").data))
    wide = Zipped(b"a", b"x", size_bytes=0xFFFFFFFF, packed_bytes=0xFFFFFFFF, extra=numbers_64)
    files, directory, _ = parts_of_zip([Zipped(b"a", b"x")])
    numbers = (1, len(directory), len(files))
    both = files + directory + end_64(*numbers, len(files + directory))
    described = Zipped(b"a", b"x", flags=8, local_extra=b"\0\0\0")
    assert ground.unpacked(forged_zip([wide]), "m.zip") == {"a": b"x"}
    assert ground.unpacked(both + end_of_zip(*numbers), "m.zip") == {"a": b"x"}
    assert ground.unpacked(both + end_of_zip(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, comment=b"c" * 65_535), "m.zip") == {"a": b"x"}
    assert ground.unpacked(forged_zip([described, Zipped(b"d", mode=stat.S_IFDIR | 0o755)], comment=b"PK"), "m.zip") == {"a": b"x"}
    assert ground.unpacked(forged_zip([Zipped(b"\x81", b"x"), Zipped("日".encode(), b"y")]), "m.zip") == {"ü": b"x", "日": b"y"}
