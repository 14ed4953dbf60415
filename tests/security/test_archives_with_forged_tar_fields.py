"""Tar archives whose headers lie, packed and plain; what other packers write is served."""

from __future__ import annotations

import gzip

import pytest

from tests.security.archive_forge import BLOCK, Tarred, forged_tar, long_name, pax
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
    "a sparse name that leads out": [OK, pax((b"GNU.sparse.name", b"../outside"), (b"size", b"1")), Tarred(b"a", b"x")],
    "sparse parts of format 0.0": [OK, pax((b"GNU.sparse.offset", b"0"), (b"GNU.sparse.numbytes", b"1")), Tarred(b"a", b"x")],
}
SPARSE = ((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"s"))


def sparse(real: bytes, content: bytes, *more: tuple[bytes, bytes]) -> list[Tarred]:
    return [OK, pax(*SPARSE, (b"GNU.sparse.realsize", real), *more), Tarred(b"GNUSparseFile.0/s", content)]


def padded(text: bytes) -> bytes:
    return text + bytes(-len(text) % BLOCK)


TARS |= {
    "a sparse map without end": sparse(b"100", padded(b"1\n" * 700)),
    "a sparse map of a billion": sparse(b"100", padded(b"1000000000\n")),
    "a sparse map of letters": sparse(b"100", padded(b"1\nx\n1\n")),
    "a sparse map of one line": sparse(b"100", padded(b"1" * 600)),
    "a sparse map below zero": sparse(b"100", padded(b"1\n-5\n1\n") + b"x"),
    "a sparse map that is cut": sparse(b"100", b"1\n0\n"),
    "sparse parts that overlap": sparse(b"100", padded(b"2\n5\n5\n0\n5\n") + b"0123456789"),
    "sparse parts behind the end": sparse(b"5", padded(b"1\n3\n5\n") + b"01234"),
    "sparse parts that are less than is there": sparse(b"100", padded(b"1\n0\n1\n") + b"01234"),
    "sparse parts that are more than is there": sparse(b"100", padded(b"1\n0\n9\n") + b"01234"),
    "a sparse file without a length": [OK, pax(*SPARSE), Tarred(b"s", padded(b"1\n0\n1\n") + b"x")],
    "a sparse file of terabytes": sparse(b"9999999999999", padded(b"1\n0\n1\n") + b"x"),
    "a sparse map in the header without end": [
        OK,
        pax((b"GNU.sparse.size", b"9"), (b"GNU.sparse.map", b"0,1," * 40_000)),
        Tarred(b"s", b"x"),
    ],
    "half a sparse map": [OK, pax((b"GNU.sparse.size", b"9"), (b"GNU.sparse.map", b"0,1,2")), Tarred(b"s", b"x")],
    "an unknown sparse format": [OK, pax((b"GNU.sparse.major", b"2"), (b"GNU.sparse.realsize", b"2")), Tarred(b"s", b"x")],
    "more keywords than there are": [OK, pax(*((b"GNU.sparse.%d" % n, b"1") for n in range(50))), Tarred(b"s", b"x")],
    "GNU's sparse parts without end": [OK, Tarred(b"s", kind=b"S", in_header=(482, b"\1")), *[bytes(504) + b"\1" + bytes(7)] * 3000],
    "GNU's sparse parts behind the end": [OK, Tarred(b"s", b"x", b"S", in_header=(386, b"%011o\0%011o\0" % (9, 1)))],
    "GNU's sparse parts below zero": [OK, Tarred(b"s", b"x", b"S", in_header=(386, b"\xff" * 12 + b"%011o\0" % 1))],
}


@pytest.mark.parametrize("what", TARS)
def test_an_entry_that_lies_refuses_the_tar(ground: Ground, what: str) -> None:
    """Packed and plain."""
    content = forged_tar(TARS[what])
    plain, packed = ground.refused(content, "m.tar"), ground.refused(gzip.compress(content), "m.tgz")
    assert plain.replace("m.tar", "m.tgz") == packed or all("unpacks to more than" in text for text in (plain, packed))


def test_honest_tars_of_other_packers_are_served(ground: Ground) -> None:
    """V7 without a magic word, signed checksums, binary lengths, comments for all, attributes nobody asks for, a file with holes."""
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
    assert ground.unpacked(forged_tar(sparse(b"9", padded(b"2\n2\n1\n5\n2\n") + b"abc")), "m.tar")["s"] == b"\0\0a\0\0bc\0\0"
    signed = bytes(Tarred("ü".encode(), content))
    total = sum(byte - 256 if byte > 127 else byte for byte in signed[:148] + b" " * 8 + signed[156:512])
    assert ground.unpacked(forged_tar([signed[:148] + b"%06o\0 " % total + signed[156:]]), "m.tar") == {"ü": content}
