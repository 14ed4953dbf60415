"""The cache on every storage type: what is copied is pulled once, also archives; a claim's files are there already."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.errors import SourceNotFound
from adapter.telemetry.metrics import REGISTRY
from adapter.volume.volume import Volume
from tests.builders import a_spec, zip_of
from tests.contract.bucket.model_rigs import STOCKS, ModelRig, make_store
from tests.fakes.web import Answer, Web
from tests.unit.storage.rigs import opened

CONTENT = os.urandom(2_000_017)


@pytest.fixture(params=list(STOCKS))
def kept(request: pytest.FixtureRequest, tmp_path: Path, volume: Volume) -> Iterator[ModelRig]:
    """A store over each storage type, which keeps idle artifacts."""
    stock = STOCKS[request.param](request)
    made = ModelRig(stock, make_store(tmp_path, volume, stock.config, cache_bytes=1 << 30), volume)
    yield made
    made.store.close()


def pulled() -> float:
    """Bytes, of all types together."""
    samples = (sample for metric in REGISTRY.collect() for sample in metric.samples)
    return sum(sample.value for sample in samples if sample.name == "triton_adapter_pulled_bytes_total")


async def load(rig: ModelRig, path: str, **params: str) -> tuple[dict[str, bytes], float]:
    """The files of a model, and how many bytes were pulled for them. The artifact is released."""
    before = pulled()
    model = await opened(rig.store, a_spec(path, storage_key="k", storage_params=params))
    artifact = await model.fetch(model.listing.files)
    content = {file.path: (artifact.root / file.path).read_bytes() for file in model.listing.files}
    await rig.store.release(artifact)
    return content, pulled() - before


async def test_a_model_is_pulled_once(kept: ModelRig) -> None:
    """Until it changes; and what is gone is gone."""
    kept.stock.put("m/file", CONTENT)
    kept.stock.settle("m/file")
    first = len(CONTENT) if kept.stock.is_copied else 0
    assert await load(kept, "m/file") == ({"file": CONTENT}, first)
    assert await load(kept, "m/file") == ({"file": CONTENT}, 0)
    kept.stock.put("m/file", b"other")
    kept.stock.settle("m/file")
    assert (await load(kept, "m/file"))[0] == {"file": b"other"}
    assert any(kept.volume.artifacts_dir.iterdir()) is kept.stock.is_copied
    kept.stock.remove("m/file")
    with pytest.raises(SourceNotFound):
        await load(kept, "m/file")


async def test_two_contents_of_one_second_and_one_length_are_two(kept: ModelRig) -> None:
    """Also where the only version is a date in seconds."""
    for content in (b"one", b"two", b"six"):
        kept.stock.put("m/file", content)
        assert (await load(kept, "m/file"))[0] == {"file": content}


async def test_an_archive_is_pulled_and_unpacked_once(kept: ModelRig) -> None:
    """Known by the archive's version."""
    if not kept.stock.is_copied:
        pytest.skip("a claim has no archives")
    archive = zip_of([("1/model.onnx", CONTENT), ("labels.txt", b"a")])
    kept.stock.put("m.zip", archive)
    kept.stock.settle("m.zip")
    files = {"1/model.onnx": CONTENT, "labels.txt": b"a"}
    assert await load(kept, "m.zip", unpack="true") == (files, len(archive))
    assert await load(kept, "m.zip", unpack="true") == (files, 0)


async def test_a_version_of_a_web_server_is_one_of_its_url_and_headers(tmp_path: Path, volume: Volume) -> None:
    """Files of one length and one date, as images and builds make them, have one ETag on most servers; the query decides which it is."""
    with Web() as web:
        store = make_store(tmp_path, volume, {"type": "http", "url": f"{web.url}/m?of=one"}, cache_bytes=1 << 30)
        (tmp_path / "config/other").write_text(json.dumps({"type": "http", "url": f"{web.url}/m?of=two"}))
        for name in ("one", "two"):
            web.answers[f"/m/file?of={name}"] = Answer(200, {"ETag": '"1-3"'}, name.encode())
        for key, name in (("k", "one"), ("other", "two"), ("k", "one")):
            model = await opened(store, a_spec("file", storage_key=key))
            artifact = await model.fetch(model.listing.files)
            assert (artifact.root / "file").read_bytes() == name.encode()
            await store.release(artifact)
        store.close()
    assert len(web.requests) == 5, "two listings and bodies, and one more listing"
