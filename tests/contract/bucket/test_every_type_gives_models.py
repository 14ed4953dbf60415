"""The contract of `ModelStore` and `StoredModel`, on every storage type that we have."""

from __future__ import annotations

import asyncio
import os

import pytest

from adapter.errors import SourceChanged, SourceNotFound
from tests.builders import a_spec
from tests.unit.storage.rigs import opened

CONTENT = os.urandom(3_000_017)
"""Of three parts."""


def spec(path="m", **fields):
    return a_spec(path, **{"storage_key": "k"} | fields)


async def fetched(models, model):
    """Every file of the artifact, by its path in the listing; then the artifact is released."""
    artifact = await model.fetch(model.listing.files)
    content = {file.path: (artifact.root / file.path).read_bytes() for file in model.listing.files}
    assert artifact.is_ours is models.stock.is_copied
    await models.store.release(artifact)
    return content


async def test_a_single_file_is_a_model(models):
    """Listed with its size, fetched whole, nothing left after release."""
    models.stock.put("deep/er/model.onnx", CONTENT)
    model = await opened(models.store, spec("/deep/er/model.onnx"))
    assert model.listing.is_single_file and model.listing.name == "model.onnx"
    assert [(file.path, file.size_bytes) for file in model.listing.files] == [("model.onnx", len(CONTENT))]
    assert await fetched(models, model) == {"model.onnx": CONTENT}
    assert models.is_clean


async def test_a_folder_is_a_model(folders):
    """All of it, empty files too, and nothing of a neighbour with a longer name."""
    tree = {"config.pbtxt": b"", "1/model.onnx": CONTENT, "1/pkg/__init__.py": b"", "labels.txt": b"a\nb"}
    for path, content in tree.items():
        folders.stock.put(f"a/m/{path}", content)
    folders.stock.put("a/m-2/file", b"neighbour")
    model = await opened(folders.store, spec("a/m/"))
    assert not model.listing.is_single_file
    assert [file.path for file in model.listing.files] == sorted(tree)
    assert await fetched(folders, model) == tree
    assert folders.is_clean


async def test_an_empty_file_is_a_file(models):
    """Nothing is asked for, something is there."""
    models.stock.put("m.txt", b"")
    model = await opened(models.store, spec("m.txt"))
    assert await fetched(models, model) == {"m.txt": b""}


async def test_small_files_are_read_into_memory(folders):
    """A config.pbtxt, before anything is fetched; and a schema from elsewhere, also of the model's own name."""
    folders.stock.put("m/config.pbtxt", b"platform: x")
    folders.stock.put("schemas/m", b"{}")
    model = await opened(folders.store, spec("m", schema_path="/schemas/m"))
    assert await model.read(model.listing.find("config.pbtxt")) == b"platform: x"
    assert await model.read(model.listing.schema) == b"{}"


async def test_nothing_there_is_not_found(models):
    """Said with the path."""
    models.stock.put("m/file", b"x")
    for absent in ("absent", "m/absent", "file"):
        with pytest.raises(SourceNotFound, match=absent):
            await opened(models.store, spec(absent))
    with pytest.raises(SourceNotFound, match=r"absent\.json"):
        await opened(models.store, spec("m/file", schema_path="absent.json"))


@pytest.mark.parametrize("new", [b"another, longer content", None])
async def test_a_file_that_changes_before_it_is_fetched_is_noticed(models, new):
    """Replaced or gone: the load lists again."""
    models.stock.put("m/file", b"old content")
    model = await opened(models.store, spec("m/file"))
    if new is None:
        models.stock.remove("m/file")
    else:
        models.stock.put("m/file", new)
    with pytest.raises(SourceChanged, match="after the listing"):
        await model.fetch(model.listing.files)
    assert models.is_clean


async def test_a_cancelled_fetch_leaves_nothing(models):
    """Whenever the cancel comes."""
    models.stock.put("m/file", CONTENT)
    model = await opened(models.store, spec("m/file"))
    for turns in range(0, 60, 7):
        task = asyncio.create_task(model.fetch(model.listing.files))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await models.store.release(await task)
        assert models.is_clean
