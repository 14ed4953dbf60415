"""A lifecycle without storage and Triton: holds models in a table."""

from adapter.errors import ModelNotLoaded, SourceNotFound
from adapter.model import ModelSpec
from adapter.serving import LoadedModel, RuntimeState

MODEL_PATH = "models/digits"
"""The one model that this lifecycle can load."""
SIZE_BYTES = 3_000_000
DEFAULT_BYTES = 1_000_000


class FakeLifecycle:
    """Loads what lies at `MODEL_PATH`; purged when the status is asked."""

    def __init__(self) -> None:
        self.loaded: dict[str, ModelSpec] = {}
        self.unloads: list[str] = []

    async def load(self, spec: ModelSpec) -> LoadedModel:
        if spec.path != MODEL_PATH:
            raise SourceNotFound(f"nothing is stored at {spec.path!r}").located(spec.model_id, "list 0.0 s")
        self.loaded[spec.model_id] = spec
        return LoadedModel(size_bytes=SIZE_BYTES, max_concurrency=0)

    async def unload(self, model_id: str) -> None:
        self.unloads.append(model_id)
        self.loaded.pop(model_id, None)

    async def predict(self, spec: ModelSpec) -> int:
        return spec.size_hint_bytes or (SIZE_BYTES if spec.path == MODEL_PATH else DEFAULT_BYTES)

    def default_prediction(self) -> int:
        return DEFAULT_BYTES

    async def size_of(self, model_id: str) -> int:
        if model_id not in self.loaded:
            raise ModelNotLoaded("the model is not loaded").located(model_id, None)
        return SIZE_BYTES

    async def status(self) -> RuntimeState:
        self.loaded.clear()
        return RuntimeState(is_ready=True, version="2.51.0", problem=None)
