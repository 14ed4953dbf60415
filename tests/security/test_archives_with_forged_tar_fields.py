"""Tar archives whose headers lie, packed and plain; what other packers write is served."""

from __future__ import annotations

import gzip

import pytest

from tests.security.archive_forge import (
    BLOCK,
    Tarred,
    forged_tar,
    long_name,
    pax,
)
from tests.security.archive_rig import Ground

OK = Tarred(b"ok", b"content")


TARS = {
    "a wrong checksum": [OK.but(checksum=b"000000\0 ")],
    "no checksum": [OK.but(checksum=b"\xff" * 8)],
    "a length that is none": [OK.but(size=b"nonsense")],
    "a length below zero": [OK.but(size=b"\xff" * 12)],
    "a length of exabytes": [OK.but(size=b"\x80" + b"\xff" * 11)],
    "a length of gigabytes": [OK.but(size=b"77777777777\0")],
    "a longer one": [OK.but(size=b"%011o\0" % (10 * BLOCK))],
    "a device": [OK, Tarred(b"dev", kind=b"3")],
    "a block device": [OK, Tarred(b"dev", kind=b"4")],
    "a pipe": [OK, Tarred(b"dev", kind=b"6")],
    "a part of another archive": [OK, Tarred(b"dev", kind=b"M")],
    "a kind that nobody knows": [OK, Tarred(b"dev", kind=b"\xff")],
    "a directory with content": [OK, Tarred(b"d", b"x", b"5")],
    "a file with a slash behind": [OK, Tarred(b"d/", b"x")],
    "the top with content": [OK, Tarred(b"./", b"x")],
    "no name": [OK, Tarred(b"", b"x")],
    "a prefix that leads out": [OK, Tarred(b"outside", b"x", prefix=b"..")],
    "a file and a directory": [OK, Tarred(b"ok/a", b"x")],
    "a file twice": [OK, OK],
    "extensions without end": [OK, *[long_name(b"n")] * 2000, Tarred(b"a", b"x")],
    "global extensions without end": [OK, *[pax((b"comment", b"n"), kind=b"g")] * 2000, Tarred(b"a", b"x")],
    "extensions of nothing": [OK, long_name(b"a"), pax((b"path", b"b"))],
    "an extension that is cut": [OK, Tarred(b"x", b"30 path=short\n", b"x")],
    "an extension without a length": [OK, Tarred(b"x", b"path=short\n", b"x")],
    "an extension of no length": [OK, Tarred(b"x", b"0 path=short\n", b"x")],
    "an extension below zero": [OK, Tarred(b"x", b"-9 path=short\n", b"x")],
    "an extension of digits": [OK, Tarred(b"x", b"9" * 100_000, b"x")],
    "an extension without a value": [OK, Tarred(b"x", b"8 path=\n" + b"7 path\n", b"x"), Tarred(b"a", b"x")],
    "an extension with something behind": [OK, Tarred(b"x", b"10 path=b\n\0\0x", b"x"), Tarred(b"a", b"x")],
    "an extended length below zero": [OK, pax((b"size", b"-1")), Tarred(b"a", b"x")],
    "an extended length of 5,000 digits": [OK, pax((b"size", b"9" * 5000)), Tarred(b"a", b"x")],
    "an extended length of exabytes": [OK, pax((b"size", b"9" * 20)), Tarred(b"a", b"x")],
    "an extended length that is none": [OK, pax((b"size", "１".encode())), Tarred(b"a", b"x")],
    "an alphabet of nobody": [OK, pax((b"hdrcharset", b"BINARY"), (b"path", b"\xe9")), Tarred(b"a", b"x")],
    "a name for all": [OK, pax((b"path", b"same"), kind=b"g"), Tarred(b"a", b"x"), Tarred(b"b", b"x")],
    "a long name that leads out": [OK, long_name(b"../outside"), Tarred(b"a", b"x")],
    "an extended name that leads out": [OK, pax((b"path", b"../outside")), Tarred(b"a", b"x")],
}


@pytest.mark.parametrize("what", TARS)
def test_an_entry_that_lies_refuses_the_tar(ground: Ground, what: str) -> None:
    """Packed and plain."""
    content = forged_tar(TARS[what])
    plain, packed = ground.refused(content, "m.tar"), ground.refused(gzip.compress(content), "m.tgz")
    assert plain.replace("m.tar", "m.tgz") == packed or all("unpacks to more than" in text for text in (plain, packed))


def test_honest_tars_of_other_packers_are_served(ground: Ground) -> None:
    """V7 without a magic word, signed checksums, binary lengths, comments for all, attributes nobody asks for."""
    content = b"x" * 100
    tars = {
        "V7": [Tarred(b"d/", kind=b"\0", magic=b""), Tarred(b"d/a", content, b"\0", magic=b"")],
        "long": [long_name(b"d/a"), Tarred(b"no", content)],
        "binary": [Tarred(b"a", content, size=b"\x80" + bytes(10) + b"\x64", prefix=b"d")],
        "pax": [pax((b"comment", b"git"), kind=b"g"), pax((b"path", b"d/a"), (b"SCHILY.xattr.x", b"\xff\0")), Tarred(b"no", content)],
        "both": [pax((b"path", b"d/a")), long_name(b"other"), Tarred(b"no", content)],
        "contiguous": [Tarred(b"d/a", content, b"7")],
    }
    for what, entries in tars.items():
        assert ground.unpacked(forged_tar(entries), "m.tar") == {"d/a": content}, what
        assert ground.unpacked(gzip.compress(forged_tar(entries, end=bytes(20 * BLOCK))) + bytes(1000), "m.tgz") == {"d/a": content}, what
    assert ground.refused_or({"d/a": content}, forged_tar([pax((b"path", b"no"), (b"path", b"")), Tarred(b"d/a", content)]), "m.tar")
    signed = bytes(Tarred("ü".encode(), content))
    total = sum(byte - 256 if byte > 127 else byte for byte in signed[:148] + b" " * 8 + signed[156:512])
    assert ground.unpacked(forged_tar([signed[:148] + b"%06o\0 " % total + signed[156:]]), "m.tar") == {"ü": content}
