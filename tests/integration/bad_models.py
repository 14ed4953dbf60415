"""Models and storage that cannot work, as they lie in a bucket, and what their load is answered: data of `test_bad_models`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter._pb import model_runtime_pb2 as spi
from tests.builders import load_request
from tests.real.models import text_statistics

PYTHON = dict(text_statistics())


@dataclass(frozen=True)
class BadModel:
    """Files in the bucket below `path`, a type, further entries of the modelKey; and the answer."""

    name: str
    code: str
    words: tuple[str, ...]
    model_type: str = "python"
    files: Mapping[str, bytes] = field(default_factory=dict)
    path: str = ""
    """Default: the folder of `files`."""
    key: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Where the files are put."""
        return "bad/" + self.name.replace(" ", "-")


def _config(text: bytes) -> dict[str, bytes]:
    return PYTHON | {"config.pbtxt": text}


BAD_MODELS = (
    BadModel(
        "pytorch without schema", "INTERNAL", ("pytorch", "add a schema (schema_path)"), model_type="pytorch", files={"model.pt": b"x"}
    ),
    BadModel("nothing at the path", "NOT_FOUND", ("'nowhere/at-all'", "s3://models"), path="nowhere/at-all"),
    BadModel("near miss", "NOT_FOUND", ("near-miss-v1",), files=PYTHON, path="bad/near-mis"),
    BadModel("no such bucket", "NOT_FOUND", ("no-such-bucket",), path="m", key={"storage_params": {"bucket": "no-such-bucket"}}),
    BadModel(
        "wrong keys",
        "PERMISSION_DENIED",
        ("InvalidAccessKeyId",),
        path="m",
        key={"storage_params": {"access_key_id": "wrong-wrong", "secret_access_key": "wrong-wrong"}},
    ),
    BadModel("schema that is not there", "NOT_FOUND", ("absent.json",), files=PYTHON, key={"schema_path": "bad/absent.json"}),
    BadModel("python without model.py", "INVALID_ARGUMENT", ("model.py",), files={"1/other.py": b""}),
    BadModel("config name that is a number", "INVALID_ARGUMENT", ("name", "line 2"), files=_config(b'backend: "python"\nname: 7\n')),
    BadModel(
        "schema that is not JSON",
        "INVALID_ARGUMENT",
        ("JSON",),
        files=PYTHON | {"s.json": b"{"},
        key={"schema_path": "bad/schema-that-is-not-JSON/s.json"},
    ),
    BadModel(
        "exception in initialize",
        "INTERNAL",
        ("no_such_module",),
        files=_config(PYTHON["config.pbtxt"]) | {"1/model.py": b"import no_such_module"},
    ),
    BadModel("backend that is not installed", "INTERNAL", ("tensorrt",), "tensorrt", files={"model.plan": b"x"}),
    BadModel("broken onnx file", "INTERNAL", ("onnx",), "onnx", files={"model.onnx": b"this is no protobuf"}),
    BadModel("config field unknown to this Triton", "INTERNAL", ("log",), files=_config(PYTHON["config.pbtxt"] + b"no_such_field: 1\n")),
)


def request_of(bad: BadModel) -> spi.LoadModelRequest:
    """The load of it."""
    return load_request("bad", bad.model_type, bad.path or bad.folder, **bad.key)
