"""Archives become plain files inside of the target, or nothing at all."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import tarfile
import zipfile

import pytest

from adapter.errors import DiskFull, InvalidModel, InvalidRequest
from adapter.space import Space
from adapter.storage.pull import archive_tree
from adapter.storage.pull.archives import Unpacking, is_archive
from adapter.workers import Stop, Stopped
from tests.unit.storage.beds import folder_content

MIB = 1024 * 1024
TREE = {"m/config.pbtxt": b"", "m/1/model.onnx": os.urandom(600_000), "m/1/ü 日.txt": b"abc"}


def member(name, kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def tar_of(entries, mode="w:gz", **options):
    """Entries: (TarInfo or name, content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, **options) as tar:
        for name, content in entries:
            info = name if isinstance(name, tarfile.TarInfo) else member(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_of(entries):
    """Entries: (ZipInfo or name, content)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return out.getvalue()


def zip_special(name, kind):
    info = zipfile.ZipInfo(name)
    info.external_attr = (kind | 0o777) << 16
    return info


MAKERS = {"m.tar.gz": tar_of, "m.tgz": tar_of, "M.TAR": lambda entries: tar_of(entries, "w"), "m.zip": zip_of}


@pytest.fixture
def unpack(tmp_path, volume):
    """Unpack bytes into an empty directory; a sentinel lies beside it."""
    (tmp_path / "outside").write_bytes(b"sentinel")

    def run(content, name="m.tar.gz", *, max_bytes=100 * MIB, stop=None):
        target = tmp_path / "target"
        target.mkdir()
        (tmp_path / "archive").write_bytes(content)
        with Space(volume.cache_dir, 0, refuses=False).reservation() as room:
            Unpacking(name=name, target=target, room=room, max_bytes=max_bytes, stop=stop or Stop()).run(tmp_path / "archive")
        return target

    yield run
    assert (tmp_path / "outside").read_bytes() == b"sentinel"
    for path in (tmp_path / "target").rglob("*"):
        assert not path.is_symlink() and (path.is_dir() or path.is_file())


@pytest.mark.parametrize("name", MAKERS)
def test_files_come_out_as_they_went_in(unpack, name):
    """With their folders, and modes that Triton's user can read."""
    target = unpack(MAKERS[name](list(TREE.items())), name)
    assert {path: (target / path).read_bytes() for path in TREE} == TREE
    assert len(folder_content(target)) == len(TREE) + 2
    assert stat.S_IMODE((target / "m/1").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "m/1/model.onnx").stat().st_mode) == 0o644


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_dialect_of_tar(unpack, format):
    """Long names, a leading `./`, entries for folders."""
    long = "d/" * 60 + "f" * 90
    entries = [(member("./", tarfile.DIRTYPE), b""), (member("./empty/", tarfile.DIRTYPE), b""), ("./a", b"1"), (long, b"2")]
    target = unpack(tar_of(entries, format=format))
    assert (target / "a").read_bytes() == b"1" and (target / long).read_bytes() == b"2" and (target / "empty").is_dir()


ESCAPES = ["../outside", "/outside", "a/../../outside", "..", "a/..", "a//b", "a/./b", "n" * 256, "/", "//etc/passwd"]


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("kind", ["m.tar.gz", "m.zip"])
def test_a_name_that_leads_out_refuses_the_archive(unpack, name, kind):
    """Absolute, with dots, empty segments, or too long."""
    with pytest.raises(InvalidModel, match="which cannot be unpacked: it "):
        unpack(MAKERS[kind]([("ok", b"x"), (name, b"evil")]), kind)


@pytest.mark.parametrize("link", ["../outside", "/etc/passwd", "../../x", "a/../../outside", ".."])
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, "zip"])
def test_a_link_that_leads_out_refuses_the_archive(unpack, link, kind):
    """Symbolic or hard."""
    with pytest.raises(InvalidModel, match=r"the link 'l' in the archive .* leads out of it"):
        if kind == "zip":
            unpack(zip_of([("a", b"x"), (zip_special("l", stat.S_IFLNK), link.encode())]), "m.zip")
        else:
            unpack(tar_of([("a", b"x"), (member("l", kind, link), b"")]))


def test_a_file_is_never_written_through_a_link(unpack):
    """The old trick: a link to a folder outside, then a file in it."""
    with pytest.raises(InvalidModel, match=r"both as a file and as a directory|twice"):
        unpack(tar_of([(member("d", tarfile.SYMTYPE, "/tmp"), b""), ("d/evil", b"x")]))


@pytest.mark.parametrize(
    ("kind", "link"), [(tarfile.SYMTYPE, "../a"), (tarfile.LNKTYPE, "a"), (tarfile.SYMTYPE, "l2"), (tarfile.LNKTYPE, "./a")]
)
def test_a_link_inside_is_a_second_name(unpack, kind, link):
    """Also to another link, and before its target."""
    target = unpack(tar_of([(member("d/l", kind, link), b""), (member("d/l2", tarfile.SYMTYPE, "../a"), b""), ("a", b"content")]))
    assert (target / "d/l").read_bytes() == b"content"
    assert not (target / "d/l").is_symlink()


@pytest.mark.parametrize("link", ["absent", "l", "d", "l2"])
def test_a_link_to_no_file_refuses_the_archive(unpack, link):
    """To nothing, itself, a folder, or in a circle."""
    entries = [(member("l", tarfile.SYMTYPE, link), b""), (member("l2", tarfile.SYMTYPE, "l"), b""), ("d/a", b"x")]
    with pytest.raises(InvalidModel, match="does not lead to a file in it"):
        unpack(tar_of(entries))


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_refuse_the_archive(unpack, kind):
    """And pipes."""
    with pytest.raises(InvalidModel, match="'dev', which is neither a file nor a directory"):
        unpack(tar_of([("a", b"x"), (member("dev", kind), b"")]))


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_devices_in_a_zip_too(unpack, kind):
    """The type is in the attributes."""
    with pytest.raises(InvalidModel, match="'dev', which is neither a file nor a directory"):
        unpack(zip_of([("a", b"x"), (zip_special("dev", kind), b"")]), "m.zip")


CONFLICTS = [["a", "a"], ["a", "a/b"], ["a/b", "a"]]


@pytest.mark.parametrize("names", CONFLICTS)
@pytest.mark.parametrize("kind", ["m.tar.gz", "m.zip"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_contradict_refuse_the_archive(unpack, names, kind):
    """Which one would be served?"""
    with pytest.raises(InvalidModel, match=r"twice|both as a file and as a directory"):
        unpack(MAKERS[kind]([(name, b"x") for name in names]), kind)


@pytest.mark.parametrize("kind", ["m.tar.gz", "m.zip", "M.TAR"])
def test_the_size_limit_holds(unpack, kind):
    """Over all files, before the byte too much is written."""
    with pytest.raises(InvalidModel, match=r"unpacks to more than 1 MiB .*UNPACK_MAX_BYTES"):
        unpack(MAKERS[kind]([(f"f{number}", os.urandom(200_000)) for number in range(6)]), kind, max_bytes=MIB)


@pytest.mark.parametrize("kind", ["m.tar.gz", "m.zip"])
def test_a_bomb_is_defused(unpack, kind, monkeypatch):
    """Zeros pack a thousandfold."""
    monkeypatch.setattr(archive_tree, "FREE_BYTES", MIB)
    with pytest.raises(InvalidModel, match="200 times its own size"):
        unpack(MAKERS[kind]([("zeros", bytes(32 * MIB))]), kind)


def test_links_count_as_their_files(unpack):
    """A thousand names of one large file are no way round the limit."""
    entries = [("a", os.urandom(600_000)), (member("b", tarfile.SYMTYPE, "a"), b"")]
    with pytest.raises(InvalidModel, match="unpacks to more than"):
        unpack(tar_of(entries), max_bytes=MIB)


def test_a_header_without_end_is_not_read_into_memory(unpack):
    """tarfile reads a name's extension whole, whatever length it claims."""
    info = member("x", tarfile.GNUTYPE_LONGNAME)
    info.size = 64 * MIB
    with pytest.raises(InvalidModel, match="is damaged"):
        unpack(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + b"n" * (64 * MIB)))


def test_entries_are_counted(unpack, monkeypatch):
    """A million empty files fill the inodes."""
    monkeypatch.setattr(archive_tree, "MAX_OBJECTS", 10)
    with pytest.raises(InvalidModel, match="more than 10 entries"):
        unpack(tar_of([(f"f{number}", b"") for number in range(11)]))


def test_room_is_asked_for_first(unpack, volume, monkeypatch):
    """With both numbers, before a byte is written."""
    free = os.statvfs(volume.cache_dir)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*free[:3], 0, 10, *free[5:])))
    monkeypatch.setattr(archive_tree, "RATIO", 10**9)
    with pytest.raises(DiskFull, match="the volume has no room: the files need 1 MiB"):
        unpack(tar_of([("a", bytes(MIB))]))


@pytest.mark.parametrize("kind", MAKERS)
def test_damage_is_told(unpack, kind):
    """Cut in the middle; another format than the name says."""
    content = MAKERS[kind](list(TREE.items()))
    with pytest.raises(InvalidModel, match="is damaged, or not what its name says"):
        unpack(content[: len(content) // 2], kind)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("content", [b"", b"not an archive", b"<html>404</html>" * 100])
def test_what_is_no_archive_is_told(unpack, kind, content):
    """Whatever its name says."""
    with pytest.raises(InvalidModel, match=r"is damaged, or not what its name says|holds no files"):
        unpack(content, kind)


@pytest.mark.parametrize("kind", ["m.zip", "m.tgz"])
def test_a_flipped_bit_is_told(unpack, kind):
    """Zip and gzip keep checksums; random content is stored as it is."""
    content = bytearray(MAKERS[kind]([("a", os.urandom(10_000))]))
    content[5000] ^= 1
    with pytest.raises(InvalidModel, match="is damaged"):
        unpack(bytes(content), kind)


def test_an_encrypted_zip_is_told(unpack):
    """There is nobody to ask for a password."""
    content = bytearray(zip_of([("a", b"x")]))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + offset] |= 1
    with pytest.raises(InvalidModel, match="is encrypted"):
        unpack(bytes(content), "m.zip")


def test_an_archive_of_nothing_is_told(unpack):
    """Triton would be shown an empty model."""
    with pytest.raises(InvalidModel, match="holds no files"):
        unpack(tar_of([(member("d", tarfile.DIRTYPE), b"")]))


@pytest.mark.parametrize("kind", ["m.tar.gz", "m.zip"])
def test_a_stop_ends_it(unpack, kind):
    """A cancelled load does not unpack on."""
    stop = Stop()
    stop.set()
    with pytest.raises(Stopped):
        unpack(MAKERS[kind]([("a", b"x")]), kind, stop=stop)


def test_a_disk_that_fills_up_goes_through(unpack, monkeypatch):
    """The caller says it in words: it is not the archive's fault."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(tar_of([("a", b"x")]))


NAMES = [("a.tar.gz", True), ("a.TGZ", True), ("a.tar", True), ("a.zip", True), ("a.onnx", False), ("tar", False), ("zip", False)]


@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_archives_are_known_by_their_names(name, expected):
    """Other files are served as they are."""
    assert is_archive(name) is expected


@pytest.mark.parametrize("name", ["a.tar.bz2", "a.7z", "a.rar", "a.txz", "a.tar.zst", "model.onnx.gz"])
def test_other_archives_are_refused(name):
    """With those that are supported."""
    with pytest.raises(InvalidRequest, match=r"cannot be unpacked; supported: \.tar\.gz, \.tgz, \.tar, \.zip$"):
        is_archive(name)
