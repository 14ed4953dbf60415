"""Models in a volume claim: nothing is copied, and no link leads out of the claim."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidModel, InvalidRequest
from tests.builders import a_spec
from tests.unit.storage.rigs import make_rig, opened, write_tree


@pytest.fixture
def claim(tmp_path):
    """The mounted claim `c`, beside another one."""
    folder = tmp_path / "claims/c"
    folder.mkdir(parents=True)
    write_tree(tmp_path / "claims/other", {"secret": b"s"})
    return folder


@pytest.fixture
def open_model(rig, claim):
    """Open a model through the store."""
    rig.configure("k", {"type": "pvc", "name": "c"})

    async def run(path="m", **fields):
        return await opened(rig.store, a_spec(path, **{"storage_key": "k"} | fields))

    return run


def paths(model):
    return [file.path for file in model.listing.files]


@pytest.mark.parametrize("path", ["", "/", "//"])
async def test_the_root_of_a_claim_is_a_model(open_model, claim, path):
    """Source: the Go adapter's name for an empty path; it then looked for the link under another name."""
    write_tree(claim, {"1/model.onnx": b"abc"})
    model = await open_model(path)
    assert paths(model) == ["1/model.onnx"]
    assert (model.listing.name, (await model.fetch(model.listing.files)).root) == ("_model", claim)


async def test_the_last_part_of_a_path_may_be_a_link(open_model, claim):
    """It is followed once: turning it later does not change what is served. Source: pvc_last_component_is_symlink."""
    write_tree(claim, {"models/v3/1/model.onnx": b"abc", "models/v4/1/model.onnx": b"de"})
    (claim / "models/current").symlink_to("v3")
    model = await open_model("models/current")
    assert (model.listing.name, model.listing.size_bytes) == ("current", 3)
    (claim / "models/current").unlink()
    (claim / "models/current").symlink_to("v4")
    assert (await model.fetch(model.listing.files)).root == claim / "models/v3"
    assert (await open_model("models/current")).listing.size_bytes == 2


@pytest.mark.parametrize("target", ["/etc", "../other", "..", "loop"])
async def test_a_path_that_is_such_a_link_is_refused(open_model, claim, target):
    """The path itself is no exception, nor is a schema's."""
    write_tree(claim, {"m/file": b"x"})
    (claim / "loop").symlink_to(target)
    with pytest.raises(InvalidModel, match=r"leads (out of|round)"):
        await open_model("loop")
    with pytest.raises(InvalidModel, match=r"leads (out of|round)"):
        await open_model("m", schema_path="loop/secret")


@pytest.mark.parametrize("name", ["..", ".", "../c", "c/m", "c\0", "/etc"])
async def test_a_claim_is_one_name(open_model, name):
    """No way out of the folder of mounts."""
    with pytest.raises(InvalidRequest, match="name is not the name of a volume claim"):
        await open_model(storage_params={"name": name})


@pytest.mark.parametrize("name", [None, "", " ", 7, {"a": "b"}])
async def test_a_config_without_a_claim_is_invalid(rig, name):
    """Whatever JSON can say instead of a name."""
    rig.configure("k", {"type": "pvc", "name": name})
    with pytest.raises(InvalidRequest, match=r"^no claim: neither storage config 'k' nor storage_params has the name"):
        await opened(rig.store, a_spec(storage_key="k"))


# what the storage helper links to, whether that is a model
HELPED = [
    ("{claim}/m", True),
    ("{claim}", True),
    ("{claims}", False),
    ("/etc", False),
]


@pytest.mark.parametrize(("target", "is_good"), HELPED)
@pytest.mark.parametrize("embedded", [None, False])
async def test_the_storage_helper_links_to_a_claim(tmp_path, volume, claim, embedded, target, is_good):
    """Source: pullman's pvc provider: ROOT_MODEL_DIR/<id>/<name> is a link."""
    rig = make_rig(tmp_path, volume, embedded=embedded)
    write_tree(claim, {"m/1/model.onnx": b"abc", "x": b"y"})
    (claim / "m/x").symlink_to("../x")
    (rig.root / "id").mkdir()
    (rig.root / "id/m").symlink_to(target.format(claim=claim, claims=claim.parent))
    spec = a_spec(str(rig.root / "id/m"), disk_size_bytes=3)
    if is_good:
        model = await opened(rig.store, spec)
        assert model.listing.size_bytes in (4, 5)
        artifact = await model.fetch(model.listing.files)
        assert (artifact.root, artifact.is_ours) == (rig.root / "id/m", False)
    else:
        with pytest.raises(InvalidModel, match="leads out of"):
            await opened(rig.store, spec)
    rig.store.close()
