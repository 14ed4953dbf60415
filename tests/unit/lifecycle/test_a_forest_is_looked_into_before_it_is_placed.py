"""What depends on a file's content is decided between the pull and Triton's folder, and a refusal there leaves nothing."""

import pytest

from adapter.errors import InvalidModel
from adapter.lifecycle.fetching import Fetching
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.model import Artifact, Layout, SourceFile
from adapter.ports import StoredModel
from tests.builders import a_spec
from tests.fakes.world import World

pytestmark = pytest.mark.looptime
FOREST = a_spec("models/f", model_id="f", model_type="xgboost")


@pytest.fixture
def forest(world: World) -> World:
    """A world whose bucket has one forest; its artifacts are no real files."""
    world.objects["models/f"] = (SourceFile("churn.model", 1000, "e1"),)
    return world


async def test_the_decided_layout_is_what_is_placed(lifecycle: RuntimeLifecycle, forest: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked once, with the pulled files."""
    asked: list[tuple[str, ...]] = []

    async def finished(_: Fetching, layout: Layout, stored: StoredModel, artifact: Artifact) -> Layout:
        asked.append((*layout.questions, *forest.trace[-1:]))
        return Layout({"1/xgboost.ubj": layout.files[0]}, {"config.pbtxt": b"x"})

    monkeypatch.setattr(Fetching, "finished", finished)
    await lifecycle.load(FOREST)

    assert asked == [("1/xgboost.model", "fetch")]
    assert list(forest.placed["f"].links) == ["1/xgboost.ubj"]


async def test_a_refusal_after_the_pull_leaves_nothing(lifecycle: RuntimeLifecycle, forest: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was placed, and the artifact goes."""

    async def finished(_: Fetching, layout: Layout, stored: StoredModel, artifact: Artifact) -> Layout:
        raise InvalidModel("the file says 3 classes")

    monkeypatch.setattr(Fetching, "finished", finished)
    with pytest.raises(InvalidModel, match="the file says 3 classes"):
        await lifecycle.load(FOREST)

    assert forest.is_empty
    assert "place f" not in forest.trace and "fetch" in forest.trace
