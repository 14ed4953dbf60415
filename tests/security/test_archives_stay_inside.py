"""Names, links and amounts of every kind of archive: refused in one line, and nothing lies outside of the target."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

import pytest

from adapter.errors import InvalidModel
from adapter.storage.search import MAX_OBJECTS
from tests.security.archive_forge import BLOCK, LINK_MODE, Tarred, Zipped, forged_tar, forged_zip, long_name, pax
from tests.security.archive_rig import MIB, Ground

OK = Tarred(b"ok", b"content")


def tar_with(name):
    return forged_tar([OK, Tarred(name, b"x")] if len(name) < 100 else [OK, long_name(name), Tarred(b"short", b"x")])


MAKERS = {
    "m.tar": tar_with,
    "m.tgz": lambda name: gzip.compress(tar_with(name)),
    "m.TAR.gz": lambda name: gzip.compress(forged_tar([OK, pax((b"path", name)), Tarred(b"short", b"x")])),
    "m.zip": lambda name: forged_zip([Zipped(b"ok", b"content"), Zipped(name, b"x")]),
}
NAMES = {
    b"../outside": "has a '..' in it",
    b"/outside": "is absolute",
    b"a/../../outside": "has a '..' in it",
    b"..": "has a '..' in it",
    b"a//b": "has an empty segment",
    b"a/./b": "has a '.' in it",
    b"/": "has an empty segment",
    b"//": "is absolute",
    b"./../outside": "has a '..' in it",
    b"./" * 600 + b"../outside": "has a '..' in it",
    b"n" * 256: "segment of more than 255 bytes",
    "ü".encode() * 128: "segment of more than 255 bytes",
    b"n" * 5000: "has more than 3072 bytes",
    b"d/" * 1200 + b"f": "has more than 500 levels",
    b"d/" * 500 + b"f": "has more than 500 levels",
    (b"n" * 99 + b"/") * 31 + b"f": "has more than 3072 bytes",
    b"\xff\xfe": "is not UTF-8",
    b"\xed\xa0\x80": "is not UTF-8",
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:20]))
def test_a_name_that_no_file_can_have_is_told(ground: Ground, kind: str, name: bytes) -> None:
    """Also where the names come from extensions, and where a name would end in the middle of a recursion."""
    reason = NAMES[name]
    content = MAKERS[kind](name)
    if kind == "m.zip" and "UTF-8" in reason:
        content = forged_zip([Zipped(name, b"x", flags=0x800)])
    if kind == "m.TAR.gz" and not name.strip(b"/"):
        reason = "a file without a name"
    assert reason in ground.refused(content, kind)


@pytest.mark.parametrize("kind", ["m.TAR.gz", "m.zip"])
def test_a_nul_does_not_end_a_name(ground: Ground, kind: str) -> None:
    """The name that was checked is the one that is used: `a.onnx NUL ../..` is no `a.onnx`."""
    assert "NUL byte" in ground.refused(MAKERS[kind](b"a\0b"), kind)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("levels", [499, 500])
def test_the_deepest_path_is_served(ground: Ground, kind: str, levels: int) -> None:
    """The bound is on levels, whatever made them."""
    path = b"d/" * (levels - 1) + b"f"
    assert ground.unpacked(MAKERS[kind](path), kind)[path.decode()] == b"x"


LINKS = {
    "out": [(b"l", b"../outside")],
    "out of a folder": [(b"d/l", b"../../outside")],
    "absolute": [(b"l", b"/etc/passwd")],
    "to itself": [(b"l", b"l")],
    "in a circle": [(b"l", b"k"), (b"k", b"l")],
    "to a directory": [(b"l", b"d")],
    "to the top": [(b"l", b".")],
    "through a directory": [(b"l", b"d"), (b"k", b"l/a")],
    "through a link that leads out": [(b"l", b".."), (b"l/outside", b"ok")],
    "to nothing": [(b"l", b"absent")],
    "a chain without end": [(b"l%d" % n, b"l%d" % (n + 1)) for n in range(100)] + [(b"l100", b"ok")],
    "of a length without end": [(b"l", b"d/../" * 2000 + b"ok")],
    "with a NUL": [(b"l", b"ok\0")],
    "over a file": [(b"ok", b"d/a")],
}


@pytest.mark.parametrize("what", LINKS)
@pytest.mark.parametrize("kind", [b"1", b"2", b"zip"])
def test_a_link_leads_to_a_file_inside_or_refuses(ground: Ground, what: str, kind: bytes) -> None:
    """Hard, symbolic, and as a zip has them."""
    if kind == b"zip":
        members = [Zipped(name, link, mode=LINK_MODE) for name, link in LINKS[what]]
        content = forged_zip([Zipped(b"ok", b"content"), Zipped(b"d/a", b"x"), *members])
    else:
        entries = [entry for name, link in LINKS[what] for entry in (pax((b"linkpath", link)), Tarred(name, kind=kind))]
        if kind == b"1" and what == "out of a folder":
            entries = [Tarred(b"d/l", kind=kind, link=b"../outside")]
        content = forged_tar([OK, Tarred(b"d/a", b"x"), *entries])
    ground.refused(content, "m.zip" if kind == b"zip" else "m.tar")


OTHERS = {
    "m.tar.gz": [(forged_tar([OK]), "it begins like tar"), (forged_zip([Zipped(b"a", b"x")]), "it begins like zip"), (b"BZh9", "bzip2")],
    "m.tar": [(gzip.compress(forged_tar([OK])), "it begins like gzip"), (b"\xfd7zXZ\0" * 100, "it begins like xz")],
    "m.zip": [(gzip.compress(b"x"), "it begins like gzip"), (forged_tar([OK]), "it begins like tar"), (b"7z\xbc\xaf\x27\x1c" * 9, "7z")],
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_kind_than_the_name_says_is_named(ground: Ground, name: str) -> None:
    """What to do is plain then."""
    for content, words in OTHERS[name]:
        assert words in ground.refused(content, name)


NOTHING = [b"", b"x", b"<html>" * 200, bytes(100), bytes(BLOCK * 20), gzip.compress(b""), forged_zip([])]


@pytest.mark.parametrize("content", NOTHING, ids=len)
@pytest.mark.parametrize("name", ["m.tar", "m.tar.gz", "m.zip"])
def test_what_is_empty_or_no_archive_is_told(ground: Ground, name: str, content: bytes) -> None:
    """None of it is a model."""
    ground.refused(content, name)


def test_gzip_of_many_members_is_one_stream(ground: Ground) -> None:
    """As parallel packers write it; what is no member behind them is told."""
    whole = forged_tar([OK, Tarred(b"b", os.urandom(10_000))])
    members = b"".join(gzip.compress(whole[start : start + 700]) for start in range(0, len(whole), 700))
    assert sorted(ground.unpacked(members, "m.tgz")) == ["b", "ok"]
    assert "gzip" in ground.refused(members + b"garbage", "m.tgz")


def test_entries_have_a_bound(ground: Ground) -> None:
    """A million entries would fill the inodes, or keep a thread; those without a file of their own count, too."""
    entries = bytes(Tarred(b"./", kind=b"5")) * (MAX_OBJECTS + 1)
    assert f"holds more than {MAX_OBJECTS} entries" in ground.refused(gzip.compress(entries, 1), "m.tgz")


ERRORS = [errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.EEXIST, errno.EMLINK]


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("what", ["directory", "file", "link"])
def test_a_name_that_the_volume_does_not_take_is_the_archives(ground: Ground, monkeypatch, number: int, what: str) -> None:
    """Volumes differ: lengths, alphabets, upper and lower case as one, links of one file."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "path")

    entries = {"directory": [Tarred(b"d", kind=b"5")], "file": [OK], "link": [OK, Tarred(b"l", kind=b"2", link=b"ok")]}[what]
    archive, target = ground.folder / "archive", ground.folder / "target-1"
    archive.write_bytes(forged_tar(entries))
    holder, name = {"directory": (Path, "mkdir"), "file": (os, "open"), "link": (Path, "hardlink_to")}[what]
    original = getattr(holder, name)

    def only_below_the_target(path: object, *rest: object, **more: object) -> object:
        below = str(path).startswith(f"{target}/")
        return fails() if below else original(path, *rest, **more)

    monkeypatch.setattr(holder, name, only_below_the_target)
    assert f"which the volume does not take: {os.strerror(number)}" in ground.refused(forged_tar(entries), "m.tar")


def test_the_limit_is_on_what_comes_out(ground: Ground) -> None:
    """Announced (zip) or met on the way (tar); links count as their files."""
    files = [Zipped(b"%d" % number, os.urandom(MIB)) for number in range(3)]
    tar = [Tarred(b"a", os.urandom(MIB)), Tarred(b"b", kind=b"2", link=b"a"), Tarred(b"c", kind=b"1", link=b"b")]
    for content, name in ((forged_zip(files), "m.zip"), (forged_tar(tar), "m.tar")):
        with pytest.raises(InvalidModel, match=r"unpacks to more than 2 MiB \(2097152 bytes\), the limit for it"):
            ground.unpacked(content, name, max_bytes=2 * MIB)
        assert len(ground.unpacked(content, name, max_bytes=3 * MIB)) == 3
