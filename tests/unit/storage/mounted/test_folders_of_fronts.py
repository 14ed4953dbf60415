"""Models in a folder that somebody else fills: linked where they lie, never left, never changed, and nobody's wait but their own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from adapter.errors import InvalidModel, InvalidRequest, SourceNotFound
from adapter.model import Named
from adapter.ports import StoredModel
from adapter.volume.volume import Volume
from tests.builders import a_spec
from tests.unit.storage.rigs import make_rig, opened, write_tree

MODEL = {"config.pbtxt": b'backend: "python"', "1/model.py": b"print()"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "opt" / "ml" / "models"
    write_tree(folder, {f"hash/model/{path}": content for path, content in MODEL.items()})
    write_tree(tmp_path / "opt", {"secret/config.pbtxt": b"", "secret/1/model.py": b"secret"})
    return folder


@pytest.fixture
async def find(tmp_path: Path, folder: Path, volume: Volume):
    rig = make_rig(tmp_path, volume)

    async def run(path: object) -> StoredModel:
        return await opened(rig.store, a_spec(str(path), folders=(folder,), named=Named("n", str(path))), 20)

    yield run
    rig.store.close()


def seen_outside(monkeypatch: pytest.MonkeyPatch, *outside: Path) -> list[str]:
    """Whatever the file system is asked about something in these folders, from now on."""
    seen: list[str] = []
    for name in ("stat", "lstat", "open", "scandir", "readlink", "listdir"):
        original = getattr(os, name)

        def call(path, *more, _original=original, **options):
            if not isinstance(path, int) and any((os.fsdecode(path) + "/").startswith(f"{folder}/") for folder in outside):
                seen.append(os.fsdecode(path))
            return _original(path, *more, **options)

        monkeypatch.setattr(os, name, call)
    return seen


async def test_a_path_may_lead_from_one_folder_to_the_next(
    tmp_path: Path, folder: Path, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what such a path passes through is looked at; what leads out of all of them is refused as ever."""
    second, third = tmp_path / "second", tmp_path / "third"
    write_tree(second, {f"deep/model/{path}": content for path, content in MODEL.items()})
    third.mkdir()
    (folder / "far").symlink_to(second / "deep")
    (folder / "round").symlink_to(third / "round")
    (third / "round").symlink_to(folder / "round")
    (third / "back").symlink_to(folder / "far")
    (folder / "out").symlink_to(second / "../opt/secret")
    (third / "twice").symlink_to("../second/../third/back")
    rig = make_rig(tmp_path, volume)
    seen = seen_outside(monkeypatch, tmp_path / "opt/secret")

    async def end(path: Path | str, *folders: Path) -> Path:
        spec = a_spec(str(path), folders=folders, named=Named("n", str(path)))
        return (await (await opened(rig.store, spec, 20)).fetch(())).root

    try:
        for path in (folder / "far/model", third / "back/model", third / "twice/model", f"/{second}/deep/model"):
            assert await end(path, folder, second, third) == second / "deep/model"
        with pytest.raises(InvalidRequest, match=f"leads out of {third}"):
            await end(third / "twice/model", third, folder)
        for path in (folder / "out", folder / "round", second):
            with pytest.raises(InvalidRequest):
                await end(path, folder, second, third)
    finally:
        rig.store.close()
    assert not seen


@pytest.mark.parametrize("path", ["../secret", "hash/../../secret", "link", "absolute", "chain/model", "link/1/model.py", ".", ""])
async def test_a_path_that_leads_out_is_refused_before_anything_is_looked_at_there(
    find, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    secret = tmp_path / "opt" / "ml" / "secret"
    shutil.move(tmp_path / "opt" / "secret", secret)
    (folder / "link").symlink_to("../secret")
    (folder / "absolute").symlink_to(secret)
    (folder / "chain").symlink_to("link2")
    (folder / "link2").symlink_to(secret)
    seen = seen_outside(monkeypatch, secret)

    with pytest.raises(InvalidRequest) as refused:
        await find(f"{folder}/{path}")

    assert refused.value.text.endswith(
        (f"leads out of {folder}; a model must lie below {folder}", f"is {folder} itself; a model must lie below it")
    )
    assert not seen


@pytest.mark.parametrize("target", ["../../../secret", "{top}/opt/secret", "../../../secret/1/model.py", f"{'../' * 30}etc/passwd"])
async def test_a_link_in_a_model_that_leads_out_is_refused_before_anything_is_looked_at_there(
    find, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    (folder / "hash/model/1/more").symlink_to(target.format(top=tmp_path))
    seen = seen_outside(monkeypatch, tmp_path / "opt/secret", Path("/etc"))
    with pytest.raises(InvalidModel, match=r"more leads (out of|nowhere).*; a model's links must stay below"):
        await find(folder / "hash/model")
    assert not seen


async def test_what_is_not_there_is_told_from_what_is_no_model(find, folder: Path) -> None:
    """404 and 400 of a front."""
    (folder / "empty/1").mkdir(parents=True)
    (folder / "dangling").symlink_to("nothing")
    (folder / "round").symlink_to("round")
    (folder / "relative").symlink_to("hash/model/config.pbtxt/x")
    for path in ("none", "hash/none/model", "dangling", "relative", "x" * 300):
        with pytest.raises(SourceNotFound, match="does not exist"):
            await find(folder / path)
    with pytest.raises(InvalidModel, match="holds no files: no model is there"):
        await find(folder / "empty")
    with pytest.raises(InvalidRequest, match="round in a circle"):
        await find(folder / "round")
    with pytest.raises(InvalidRequest, match="is not an absolute path"):
        await find("hash/model")
