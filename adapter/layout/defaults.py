"""
The config.pbtxt of a model that brought none.

Most backends need none: Triton tells them by the files' names and asks them for the tensors. Owns
what the others must be told, and the line that names the backend where a schema is to be written.
Pure: the model's files are known by name only; a forest's config waits for the file's content (`fil`).

Source: dali_backend's and vllm_backend's documentation; Triton core `constants.h` for the platform of
AOTInductor packages.
"""

from __future__ import annotations

from adapter.ends import Ends
from adapter.layout import fil, model_config, schema, textproto
from adapter.layout.model_config import ModelConfig
from adapter.layout.model_types import ModelType
from adapter.layout.schema import Schema
from adapter.layout.tree import Tree
from adapter.model import Decision, Question


def config(kind: ModelType, version: Tree, schema_content: bytes | None) -> ModelConfig | None:
    """
    What is written beside one version's files, as they are placed; None where Triton needs nothing.

    Raises:
        InvalidModel: the schema cannot be read.
    """
    base = _base(kind, version)
    if base is None and schema_content is None:
        return None
    text = base if base is not None else _backend(kind)
    tensors = Schema()
    if schema_content is not None:
        tensors = schema.read(schema_content, model_config.read(text.encode()).max_batch_size)
    return model_config.new(text, tensors)


def question(kind: ModelType, version: Tree, directory: str, schema_content: bytes | None) -> Question | None:
    """
    What must be known of the files of one version before their config can be written; None where nothing must.

    Raises:
        InvalidModel: the schema cannot be used, whatever is in the files.
    """
    if kind.backend != fil.BACKEND:
        return None
    name = next(name for name in kind.file_names if name in version.file_names)
    tensors = schema.Schema() if schema_content is None else schema.read(schema_content, fil.MAX_BATCH_SIZE)
    fil.check_schema(tensors)
    source = version.files[name].path
    known = fil.format_of(name)

    def decide(ends: Ends) -> Decision:
        forest, written = fil.config(source, known, ends, tensors)
        return Decision(f"{directory}/{forest.file_name}", {model_config.FILE_NAME: written.rewritten(None)})

    return Question(f"{directory}/{name}", known.count, decide)


def _base(kind: ModelType, version: Tree) -> str | None:
    """The lines without which the backend would not load the model."""
    if kind.name == "pytorch" and "model.pt2" in version.file_names and kind.file_name not in version.file_names:
        return _backend(kind) + 'platform: "torch_aoti"\n'
    if kind.name == "vllm":
        return _backend(kind) + "instance_group { count: 1 kind: KIND_MODEL }\n"
    if kind.name == "dali":
        return _backend(kind)
    return None


def _backend(kind: ModelType) -> str:
    return f"backend: {textproto.quoted(kind.backend)}\n" if kind.backend else ""
