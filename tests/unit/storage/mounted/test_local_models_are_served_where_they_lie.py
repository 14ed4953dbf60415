"""Files that the storage helper pulled: listed, linked to, never changed; links resolved inside of the root only."""

from __future__ import annotations

import errno
import os

import pytest

from adapter.errors import InvalidModel, InvalidRequest, SourceChanged, SourceUnavailable
from adapter.storage.mounted import local
from adapter.storage.mounted.finders import Mounted
from tests.unit.storage.rigs import make_search, write_tree


@pytest.fixture
def root(tmp_path):
    """ROOT_MODEL_DIR with our own folders in it."""
    root = tmp_path / "models"
    write_tree(root, {"_triton_models/x/1/model": b"t", "_adapter/lock": b""})
    return root


@pytest.fixture
def mounted(root, tmp_path):
    """Make the finder, with these folders of our own."""
    made = []

    def make(*own):
        made.append(Mounted(tmp_path / "claims", root, own))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def find(root, mounted):
    """List a path below the root."""
    models = mounted(root / "_triton_models", root / "_adapter")

    async def run(path, *, schema_path=None):
        search = make_search(str(root / path), schema_path=schema_path, disk_size_bytes=1)
        found = await models.helped(search)
        assert search.seen_bytes == found.listing.size_bytes + (found.listing.schema.size_bytes if found.listing.schema else 0)
        return found

    return run


@pytest.mark.parametrize("change", ["content", "replace", "remove"])
async def test_a_changed_file_is_noticed(root, find, change):
    """Neither read nor placed as if it were what was listed."""
    write_tree(root / "id/m", {"a": b"abc", "b": b"x"})
    model = await find("id/m")
    target = root / "id/m/a"
    if change == "content":
        target.write_bytes(b"abcd")
    elif change == "replace":
        (root / "new").write_bytes(b"abc")
        (root / "new").replace(target)
    else:
        target.unlink()
    with pytest.raises(SourceChanged, match="after the listing"):
        await model.fetch(model.listing.files)
    with pytest.raises(SourceChanged, match="after the listing"):
        await model.read(model.listing.find("a"))
    assert await model.fetch((model.listing.find("b"),))


async def test_a_file_that_cannot_be_read_before_it_is_placed_names_its_volume(root, find, monkeypatch):
    """Not the volume that the adapter and Triton share."""
    write_tree(root / "id/m", {"a": b"abc"})
    model = await find("id/m")

    def opened(_path, _flags):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    artifact = await model.fetch(model.listing.files)
    monkeypatch.setattr(local, "opened", opened)
    with pytest.raises(SourceUnavailable, match=f"^{model.reads.holder}: the model's file a cannot be read.*: Input/output error"):
        await model.ends(artifact, model.listing.files)


OUTSIDE = ["/etc/passwd", "{root}", "{root}/", "{root}/../x", "{root}/a/../../x", "relative/path", "", "{root}x/y", "{root}/a\0b"]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_a_path_outside_of_the_root_is_invalid(root, mounted, path):
    """Also by dots, and by a name that only starts like it."""
    models = mounted()
    with pytest.raises(InvalidRequest, match="is not an absolute path below"):
        await models.helped(make_search(path.format(root=root), disk_size_bytes=1))


async def test_a_model_that_holds_a_folder_of_our_own_is_refused(root, mounted):
    """By its directories, and by a link to the folder above."""
    write_tree(root, {"id/model": b"", "id/link/x": b""})
    (root / "id/link/away").symlink_to(root / "above")
    write_tree(root, {"above/cache/lock": b""})
    models = mounted(root / "above/cache")
    for path in ("above", "id"):
        with pytest.raises(InvalidModel, match=r"leads into .*, where no model may lie"):
            await models.helped(make_search(str(root / path), disk_size_bytes=1))


# name of the link in id/m, its target, words
BAD_LINKS = [
    ("x", "/etc/passwd", "leads out of"),
    ("x", "../../../outside", "leads out of"),
    ("x", "/etc", "leads out of"),
    ("x", "../..", "leads round in a circle"),
    ("x", "absent", "leads nowhere"),
    ("x", "x", "leads round in a circle"),
    ("sub/x", "..", "leads round in a circle"),
    ("sub/x", ".", "leads round in a circle"),
    ("x", "../../_adapter", "where no model may lie"),
    ("x", "../../_triton_models/x", "where no model may lie"),
]


@pytest.mark.parametrize(("name", "target", "words"), BAD_LINKS)
async def test_a_link_that_leads_elsewhere_refuses_the_model(root, find, name, target, words):
    """Out of the root, nowhere, or in a circle."""
    write_tree(root.parent, {"outside": b"secret"})
    write_tree(root / "id/m", {"sub/file": b"x"})
    (root / "id/m" / name).symlink_to(target)
    with pytest.raises(InvalidModel, match=words):
        await find("id/m")


async def test_links_cannot_multiply_without_end(root, find, monkeypatch):
    """Each level doubles the next: ten thousand paths out of a few links."""
    monkeypatch.setattr(local, "MAX_OBJECTS", 1000)
    for level in range(20):
        write_tree(root / "id", {f"l{level}/file": b""})
    for level in range(19):
        (root / f"id/l{level}/a").symlink_to(f"../l{level + 1}")
        (root / f"id/l{level}/b").symlink_to(f"../l{level + 1}")
    with pytest.raises(InvalidModel, match="holds more than 1000 files and directories"):
        await find("id/l0")


async def test_what_is_no_file_refuses_the_model(root, find):
    """A pipe would hang its reader."""
    write_tree(root / "m", {"file": b""})
    os.mkfifo(root / "m/pipe")
    with pytest.raises(InvalidModel, match="pipe is neither a file nor a directory"):
        await find("m")
    with pytest.raises(InvalidModel, match="neither"):
        await find("m/pipe")
