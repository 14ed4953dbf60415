"""
The nouns of the domain, and ModelMesh's request for a model, with whatever a test does not name.

The one place of its kind for every tier. Knows `adapter.model` and the SPI's messages, no room of the adapter. Real models
(files that a Triton loads) are made in `tests/real/models.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from adapter._pb import model_runtime_pb2 as spi
from adapter.model import Listing, ModelSpec, SourceFile

STORAGE_KEY = "s3"


def a_file(path: str, size_bytes: int = 1, etag: str | None = None) -> SourceFile:
    """A file as a store lists it; its ETag tells its path and size unless it is given."""
    return SourceFile(path, size_bytes, f"{path}-{size_bytes}" if etag is None else etag)


def a_listing(files: Iterable[str | SourceFile], *, is_single_file: bool = False, schema: SourceFile | None = None) -> Listing:
    """What a store has for a model of these files, sorted as a store does."""
    rows = sorted((a_file(file) if isinstance(file, str) else file for file in files), key=lambda row: row.path)
    name = rows[0].path if is_single_file else "model"
    return Listing("s3://bucket/model", name, is_single_file, tuple(rows), schema)


def a_spec(path: str = "m", *, model_id: str = "m", model_type: str = "", **fields: Any) -> ModelSpec:
    """A decoded request for the model at this path; of a type that is not known unless it is given."""
    return ModelSpec(model_id=model_id, model_type=model_type, path=path, **fields)


def load_request(model_id: str, model_type: str, path: str, **key: Any) -> spi.LoadModelRequest:
    """What ModelMesh sends for an InferenceService of this type. Further entries of the modelKey as keywords."""
    model_key = json.dumps({"storage_key": STORAGE_KEY, "model_type": {"name": model_type}} | key)
    return spi.LoadModelRequest(modelId=model_id, modelType=f"mt:{model_type}", modelPath=path, modelKey=model_key)
