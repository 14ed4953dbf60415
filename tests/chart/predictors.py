"""
From an InferenceService or a Predictor to the load request that ModelMesh makes of it, as ModelMesh Serving's controller does.

The hash in a model id is of our own bytes: its form is the controller's, its value is not.

Source: modelmesh-serving `pkg/predictor_source/inferenceservice_registry.go`, `controllers/predictor_controller.go`,
`controllers/modelmesh/model_type_labels.go`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from adapter._pb import model_runtime_pb2 as spi

DEPLOYMENT_MODE = "serving.kserve.io/deploymentMode"
_AZURE = "blob.core.windows.net"


class NotAPredictorError(Exception):
    """The controller makes no model of this object."""


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """What the controller knows of one model."""

    name: str
    source: str
    """Of the object's kind, as in a model id."""
    format: Mapping[str, str]
    runtime: str | None = None
    path: str
    schema_path: str | None = None
    storage_key: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Which runtimes may have the model."""
        if self.runtime:
            return f"rt:{self.runtime}"
        return ":".join(["mt", *(self.format[part] for part in ("name", "version") if part in self.format)])

    def load_request(self) -> spi.LoadModelRequest:
        """What ModelMesh sends to the runtime; absent fields are left out."""
        fields = {
            "storage_key": self.storage_key,
            "storage_params": dict(self.parameters),
            "model_type": dict(self.format),
            "schema_path": self.schema_path,
        }
        key = json.dumps({name: value for name, value in fields.items() if value})
        digest = hashlib.sha1(f"{self.path} {key}".encode(), usedforsecurity=False).hexdigest()[:10]
        model_id = f"{self.name}__{self.source}-{digest}"
        return spi.LoadModelRequest(modelId=model_id, modelType=self.label, modelPath=self.path, modelKey=key)


def predictor_of(resource: Mapping[str, Any]) -> Predictor:
    """
    The model of an InferenceService (with `predictor.model`) or of a Predictor.

    Raises:
        NotAPredictorError: the controller would pass it over, or refuse it.
    """
    if resource["kind"] == "Predictor":
        return _of_predictor(resource)
    metadata = resource["metadata"]
    if metadata.get("annotations", {}).get(DEPLOYMENT_MODE) != "ModelMesh":
        raise NotAPredictorError(f"{metadata['name']}: the annotation {DEPLOYMENT_MODE} is not ModelMesh")
    model = resource["spec"]["predictor"]["model"]
    storage = model.get("storage", {})
    uri = model.get("storageUri")
    if (uri is None) is ("path" not in storage):
        raise NotAPredictorError(f"{metadata['name']}: expected either storageUri or storage.path")
    path, of_uri = (storage["path"], {}) if uri is None else _of_uri(uri)
    return Predictor(
        name=metadata["name"],
        source="isvc",
        format=model["modelFormat"],
        runtime=model.get("runtime"),
        path=path,
        schema_path=storage.get("schemaPath"),
        storage_key=storage.get("key"),
        parameters={**storage.get("parameters", {}), **of_uri},
    )


def _of_predictor(resource: Mapping[str, Any]) -> Predictor:
    spec = resource["spec"]
    storage = spec.get("storage", {})
    if {"s3", "persistentVolumeClaim"} & set(storage) or {"path", "schemaPath"} & set(spec):
        raise NotAPredictorError(f"{resource['metadata']['name']}: fields of the old form")
    return Predictor(
        name=resource["metadata"]["name"],
        source="ksp",
        format=spec["modelType"],
        runtime=spec.get("runtime", {}).get("name"),
        path=storage.get("path", ""),
        schema_path=storage.get("schemaPath"),
        storage_key=storage.get("key"),
        parameters=storage.get("parameters", {}),
    )


def _of_uri(uri: str) -> tuple[str, dict[str, str]]:
    """Model path and storage parameters that a storageUri stands for."""
    parts = urlsplit(uri)
    path = parts.path.removeprefix("/")
    if parts.scheme in ("http", "https"):
        return _of_web(uri, parts, path)
    kinds = {"s3": ("s3", "bucket"), "gs": ("gcs", "bucket"), "pvc": ("pvc", "name")}
    if parts.scheme not in kinds:
        raise NotAPredictorError(f"unsupported scheme of a storageUri: {parts.scheme}")
    kind, place = kinds[parts.scheme]
    return path, {"type": kind, place: parts.netloc}


def _of_web(uri: str, parts: SplitResult, path: str) -> tuple[str, dict[str, str]]:
    if not parts.netloc.endswith(_AZURE):
        return "", {"type": "http", "url": uri}
    container, _, rest = path.partition("/")
    return rest, {"type": "azure", "account_name": parts.netloc.partition(".")[0], "container": container}
