"""
The config.pbtxt of a model that brought none.

Most backends need none: Triton tells them by the files' names and asks them for the tensors. Owns
what the others must be told, and the line that names the backend where a schema is to be written.
Pure: the model's files are known by name only.

Source: fil_backend `docs/model_config.md` and `src/shared_state.h` (`output_class` is required, newer
releases take it for `is_classifier`; `threshold` is required with it); dali_backend's and
vllm_backend's documentation; Triton core `constants.h` for the platform of AOTInductor packages.
"""

from __future__ import annotations

from adapter.errors import InvalidModel
from adapter.layout import model_config, schema, textproto
from adapter.layout.model_config import ModelConfig
from adapter.layout.model_types import ModelType
from adapter.layout.schema import Schema, Tensor
from adapter.layout.tree import Tree, shortened

FIL_MAX_BATCH_SIZE = 32768
"""The FIL backend works in batches only; its documentation's own example."""
_FIL_FORMATS = {
    "xgboost.json": "xgboost_json",
    "xgboost.ubj": "xgboost_ubj",
    "xgboost.model": "xgboost",
    "model.txt": "lightgbm",
    "checkpoint.tl": "treelite_checkpoint",
}
_FIL_INPUT, _FIL_OUTPUT, _FIL_SHAPLEY = "input__0", "output__0", "treeshap_output"


def config(kind: ModelType, version: Tree, schema_content: bytes | None) -> ModelConfig | None:
    """
    What is written beside one version's files, as they are placed; None where Triton needs nothing.

    Raises:
        InvalidModel: the schema cannot be read, or has tensors that the backend does not.
    """
    base = _base(kind, version)
    if base is None and schema_content is None:
        return None
    text = base if base is not None else _backend(kind)
    tensors = Schema()
    if schema_content is not None:
        tensors = schema.read(schema_content, model_config.read(text.encode()).max_batch_size)
    if kind.backend == "fil":
        text += _classes(tensors)
    return model_config.new(text, tensors)


def _base(kind: ModelType, version: Tree) -> str | None:
    """The lines without which the backend would not load the model."""
    if kind.backend == "fil":
        return _fil(next(name for name in kind.file_names if name in version.file_names))
    if kind.name == "pytorch" and "model.pt2" in version.file_names and kind.file_name not in version.file_names:
        return _backend(kind) + 'platform: "torch_aoti"\n'
    if kind.name == "vllm":
        return _backend(kind) + "instance_group { count: 1 kind: KIND_MODEL }\n"
    if kind.name == "dali":
        return _backend(kind)
    return None


def _backend(kind: ModelType) -> str:
    return f"backend: {textproto.quoted(kind.backend)}\n" if kind.backend else ""


def _fil(file_name: str) -> str:
    """Any number of features in, one number out: a regression, or the probability of a binary class."""
    return (
        f'backend: "fil"\nmax_batch_size: {FIL_MAX_BATCH_SIZE}\n'
        f'input {{ name: "{_FIL_INPUT}" data_type: TYPE_FP32 dims: [ -1 ] }}\n'
        f'output {{ name: "{_FIL_OUTPUT}" data_type: TYPE_FP32 dims: [ 1 ] }}\n'
        f"dynamic_batching {{ }}\n{_parameter('model_type', _FIL_FORMATS[file_name])}"
    )


def _classes(tensors: Schema) -> str:
    """With a schema of several outputs per row: one probability per class."""
    for tensor in tensors.inputs:
        _check_fil_tensor(tensor, (_FIL_INPUT,))
    for tensor in tensors.outputs:
        _check_fil_tensor(tensor, (_FIL_OUTPUT, _FIL_SHAPLEY))
    if any(tensor.name == _FIL_OUTPUT and tensor.dims != (1,) for tensor in tensors.outputs):
        return _parameter("output_class", "true") + _parameter("threshold", "0.5") + _parameter("predict_proba", "true")
    return _parameter("output_class", "false")


def _check_fil_tensor(tensor: Tensor, names: tuple[str, ...]) -> None:
    if tensor.name not in names:
        raise InvalidModel(
            f"the schema has a tensor {shortened(tensor.name)}, and the FIL backend calls its own {' or '.join(names)}: "
            "name it so, or bring a config.pbtxt"
        )
    if tensor.data_type != "TYPE_FP32":
        raise InvalidModel(f"the schema gives {tensor.name} another datatype than FP32, the only one of the FIL backend")


def _parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
