"""
`config.pbtxt`: what the layout must know of it, and the two changes that the adapter makes.

Owns the reading of a few known fields and the rewriting: the top-level `name` goes (the directory's
name, which is the model id, takes its place), and the schema's tensors come in. Everything else stays
as it was written, whether anyone here knows the field or not, to the byte: a comment
need not be UTF-8. Pure.

Source: triton-inference-server/common `model_config.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter.errors import InvalidModel
from adapter.layout import config_check, references, tensors, textparser, textproto
from adapter.layout.references import Reference
from adapter.layout.schema import Schema
from adapter.layout.textproto import Message, Scalar
from adapter.layout.versions import VersionPolicy

FILE_NAME = "config.pbtxt"
MAX_BYTES = 1024 * 1024
"""Far above any real one; reading takes less than 2 s per MiB at worst."""

_EMPTY = Message((), 0, 0)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The fields that decide about a layout. The default is an absent or empty file."""

    text: str = field(default="", repr=False)
    tree: Message = field(default=_EMPTY, repr=False)
    backend: str = ""
    platform: str = ""
    default_model_filename: str = ""
    max_batch_size: int = 0
    version_policy: VersionPolicy = field(default_factory=VersionPolicy)

    @property
    def is_ensemble(self) -> bool:
        """Whether Triton only routes tensors between other models: nothing is loaded from files."""
        return self.platform == "ensemble" or bool(self.tree.all("ensemble_scheduling"))

    @property
    def says_backend(self) -> bool:
        """Whether Triton need not look into a version directory to find the backend."""
        return bool(self.backend or self.default_model_filename or self.platform)

    @property
    def is_decoupled(self) -> bool:
        """Whether the model answers a request any number of times; the vLLM backend sees to it, whatever its config says."""
        policies = (value for field in self.tree.all("model_transaction_policy") for value in field.values if isinstance(value, Message))
        said = [str(_last(policy, "decoupled", "")) for policy in policies]
        return self.backend == "vllm" or bool(said and said[-1] in ("true", "True", "t", "1"))

    @property
    def has_tensors(self) -> bool:
        """Whether there are inputs and outputs."""
        return bool(self.tensor_names("input") and self.tensor_names("output"))

    def tensor_names(self, side: str) -> list[str]:
        """Names of the tensors of `input` or `output`, in order."""
        tensors = (value for field in self.tree.all(side) for value in field.values if isinstance(value, Message))
        return [str(_last(tensor, "name", "")) for tensor in tensors]

    @property
    def references(self) -> tuple[Reference, ...]:
        """The other models that this one names."""
        return references.references(self.tree)

    def rewritten(self, schema: Schema | None, names: Mapping[str, str] | None = None) -> bytes:
        """
        The file as Triton shall read it: without `name`, with the schema's tensors, and with new names for other models.

        Raises:
            InvalidModel: the config's own entries are in the way of the schema's.
        """
        edits = [textproto.removal(self.text, name) for name in self.tree.all("name")]
        if schema is not None:
            edits += tensors.edits(self.text, self.tree, "input", schema.inputs)
            edits += tensors.edits(self.text, self.tree, "output", schema.outputs)
        edits += references.edits(self.tree, names or {})
        return textproto.splice(self.text, edits).encode("utf-8", "surrogateescape")


def read(content: bytes, path: str = FILE_NAME) -> ModelConfig:
    """
    Parse a config.pbtxt. A byte order mark and an empty file are legal; `path` is for error texts.

    Raises:
        InvalidModel: with line and column.
    """
    if len(content) > MAX_BYTES:
        raise InvalidModel(f"{path} has {len(content)} bytes, more than {MAX_BYTES}")
    text = content.decode("utf-8-sig", "surrogateescape")
    try:
        tree = textparser.parse(text)
    except textparser.ParseError as error:
        raise InvalidModel(f"{path} cannot be parsed: {error}") from error
    config_check.check(text, tree, path)
    batch = tree.all("max_batch_size")
    if (max_batch_size := int(_last(tree, "max_batch_size", 0))) < 0:
        config_check.refuse(text, batch[-1].value.start, path, f"max_batch_size is {max_batch_size}, 0 or more is expected")
    return ModelConfig(
        text=text,
        tree=tree,
        backend=str(_last(tree, "backend", "")),
        platform=str(_last(tree, "platform", "")),
        default_model_filename=str(_last(tree, "default_model_filename", "")),
        max_batch_size=max_batch_size,
        version_policy=_version_policy(tree),
    )


def new(text: str, schema: Schema) -> ModelConfig:
    """A config for a model that brought none: some lines of ours, and the schema's tensors."""
    return read(read(text.encode()).rewritten(schema), f"the {FILE_NAME} that the schema makes")


def _last(message: Message, name: str, default: str | int) -> str | int:
    """The value of a field that `config_check` knows to hold one scalar; set anew after a default, the last counts."""
    found = [value.value for field in message.all(name) for value in field.values if isinstance(value, Scalar)]
    return found[-1] if found else default


def _version_policy(config: Message) -> VersionPolicy:
    policies = config.all("version_policy")
    if not policies:
        return VersionPolicy()
    for choice in (choice for policy in policies for value in policy.values if isinstance(value, Message) for choice in value.fields):
        body = choice.value
        if choice.name == "latest" and isinstance(body, Message):
            return VersionPolicy(latest=int(_last(body, "num_versions", 0)))
        if choice.name == "specific" and isinstance(body, Message):
            listed = (value for field in body.all("versions") for value in field.values if isinstance(value, Scalar))
            return VersionPolicy(latest=None, specific=tuple(int(value.value) for value in listed))
    return VersionPolicy(latest=None)
