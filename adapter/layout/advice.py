"""
What a layout cannot mend, in words: what to add if Triton refuses the model, and what a model that loads cannot do.

Says nothing that refuses a model, which `hazards` and the rules do. Pure.

Source: pytorch_backend `src/libtorch.cc` and `src/pt2/model_state.cc` (`AutoCompleteConfig` fills nothing in, TorchScript
and AOTInductor alike; `ValidateInputs` and `ValidateOutputs` refuse empty lists); vllm_backend `src/model.py`
(`auto_complete_config` always sets the decoupled policy, `initialize` asserts it); ModelMesh `SidecarModelMesh.java`
(unary calls only); dali_backend `src/model_provider/model_provider.h` (`ValidatePath`).
"""

from __future__ import annotations

import re

from adapter.layout.model_config import ModelConfig
from adapter.layout.model_types import ModelType
from adapter.layout.tree import Tree

DECOUPLED = "it may answer a request any number of times, and ModelMesh forwards calls with one answer only"

_PYTORCH_FILES = frozenset({"model.pt", "model.pt2"})
_PYTORCH_PLATFORMS = frozenset({"pytorch_libtorch", "torch_aoti", "pytorch_aoti"})
_PLAIN = re.compile(r"[A-Za-z0-9_.]+")


def hint(kind: ModelType, name: str, config: ModelConfig, version: Tree) -> str:
    """
    What helps if Triton refuses the model of this name; empty when nothing is known.

    `version` has the files of a version that will be served.
    """
    backend = config.backend or ("" if config.platform else kind.backend)
    if config.is_ensemble:
        return ""
    is_named_so = not config.says_backend and not backend and not _PYTORCH_FILES.isdisjoint(version.file_names)
    if (backend == "pytorch" or config.platform in _PYTORCH_PLATFORMS or is_named_so) and not config.has_tensors:
        add = "name all of them in the schema or in config.pbtxt" if config.text else "add a schema (schema_path) or a config.pbtxt"
        return f"the PyTorch backend does not fill in inputs and outputs: {add}"
    if backend == "dali" and "model.dali" not in version.file_names and not _PLAIN.fullmatch(name):
        return (
            "the DALI backend runs dali.py only below a path of letters, digits, '_' and '.', and the model id has others: "
            "serialize the pipeline and upload model.dali"
        )
    return ""


def warnings(config: ModelConfig) -> tuple[str, ...]:
    """What clients of a model with this config will miss."""
    if config.is_decoupled:
        return (f"the model is decoupled: {DECOUPLED}; ask Triton itself, or serve a model that is not decoupled",)
    return ()
