"""
The nouns of the domain, and ModelMesh's request for a model, with whatever a test does not name; and archives.

The one place of its kind for every tier. Knows `adapter.model` and the SPI's messages, no other package of the adapter. Real models
(files that a Triton loads) are made in `tests/real/models.py`.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Iterable
from typing import Any, Literal

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


def a_forest(format_: str = "json", features: int = 4, classes: int = 1, objective: str = "") -> bytes:
    """
    What a file with a forest says of itself, without trees, which the adapter never reads: enough to lay it out, too little to serve it.

    The format is `json`, `ubj` or `binary` (XGBoost's), `text` (LightGBM's) or `checkpoint` (Treelite's).
    """
    name = objective or ("multi:softprob" if classes > 1 else "reg:squarederror")
    said = str(classes if classes > 1 else 0)
    if format_ == "text":
        counts = f"num_class={classes}\nnum_tree_per_iteration={classes}\nmax_feature_idx={features - 1}"
        usual = f"multiclass num_class:{classes}" if classes > 1 else "regression"
        return f"tree\nversion=v4\n{counts}\nobjective={objective or usual}\n\nTree=0\n".encode()
    if format_ == "checkpoint":
        numbers = struct.pack("<iiiBBQi", 4, 8, 1, 2, 2, 1, features) + struct.pack("<BBi", 2 if classes > 1 else 1, 1, 1)
        return numbers + struct.pack("<Qi", 1, classes) + struct.pack("<Qii", 2, 1, classes)
    if format_ == "binary":
        head = struct.pack("<fIiiiIII104x", 0.5, features, classes if classes > 1 else 0, 0, 0, 1, 7, 1)
        return b"binf" + head + b"".join(struct.pack("<Q", len(word)) + word.encode() for word in (name, "gbtree"))
    parameters = {"num_class": said, "num_feature": str(features), "num_target": "1"}
    learner = {"gradient_booster": {"model": {}}, "learner_model_param": parameters, "objective": {"name": name}}
    document = {"learner": learner, "version": [2, 1, 0]}
    return json.dumps(document).encode() if format_ == "json" else _ubjson(document)


def _ubjson(value: Any) -> bytes:
    """As XGBoost writes it: lengths of eight bytes."""
    if isinstance(value, dict):
        return b"{" + b"".join(_ubjson(key)[1:] + _ubjson(item) for key, item in value.items()) + b"}"
    if isinstance(value, str):
        return b"SL" + struct.pack(">q", len(value.encode())) + value.encode()
    if isinstance(value, list):
        return b"[#L" + struct.pack(">q", len(value)) + b"".join(map(_ubjson, value))
    return b"L" + struct.pack(">q", value)


def load_request(model_id: str, model_type: str, path: str, **key: Any) -> spi.LoadModelRequest:
    """What ModelMesh sends for an InferenceService of this type. Further entries of the modelKey as keywords."""
    model_key = json.dumps({"storage_key": STORAGE_KEY, "model_type": {"name": model_type}} | key)
    return spi.LoadModelRequest(modelId=model_id, modelType=f"mt:{model_type}", modelPath=path, modelKey=model_key)


def predict_request(model_id: str, model_type: str, path: str, **key: Any) -> spi.PredictModelSizeRequest:
    """What ModelMesh asks before it sends such a load."""
    load = load_request(model_id, model_type, path, **key)
    return spi.PredictModelSizeRequest(modelId=load.modelId, modelType=load.modelType, modelPath=path, modelKey=load.modelKey)


def tar_of(entries: Iterable[tuple[str | tarfile.TarInfo, bytes]], mode: Literal["w", "w:gz"] = "w:gz") -> bytes:
    """A tar of these members with their content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, content in entries:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_of(entries: Iterable[tuple[str | zipfile.ZipInfo, bytes]]) -> bytes:
    """A zip of these members with their content."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return out.getvalue()
