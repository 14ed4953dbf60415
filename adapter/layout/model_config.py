"""
`config.pbtxt`: what the layout must know of it, and the two changes that the adapter makes.

Owns the reading of a few known fields and the rewriting: the top-level `name` goes (the directory's
name, which is the model id, takes its place), and the schema's tensors come in. Everything else stays
as it was written, whether anyone here knows the field or not. Pure.

Source: triton-inference-server/common `model_config.proto`; Triton reads it with protobuf's C++
`TextFormat`, which refuses a field that is set twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from adapter.errors import InvalidModel
from adapter.layout import references, tensors, textproto
from adapter.layout.references import Reference
from adapter.layout.schema import Schema
from adapter.layout.textproto import Field, Message, Scalar
from adapter.layout.versions import VersionPolicy

FILE_NAME = "config.pbtxt"
MAX_BYTES = 1024 * 1024
"""Far above any real one; parsing takes about 1.5 s per MiB at worst."""

_EMPTY = Message((), 0, 0)
_STRINGS = frozenset({"name", "platform", "backend", "runtime", "default_model_filename"})
_MESSAGES = frozenset({
    "version_policy", "optimization", "dynamic_batching", "sequence_batching", "ensemble_scheduling", "model_operations",
    "model_transaction_policy", "model_repository_agents", "response_cache", "model_metrics",
})  # fmt: skip
_REPEATED = frozenset({
    "input", "output", "batch_input", "batch_output", "instance_group", "cc_model_filenames", "metric_tags", "parameters", "model_warmup",
})  # fmt: skip
_POLICIES = ("latest", "all", "specific")


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
        return textproto.splice(self.text, edits).encode()


def read(content: bytes, path: str = FILE_NAME) -> ModelConfig:
    """
    Parse a config.pbtxt. A byte order mark and an empty file are legal; `path` is for error texts.

    Raises:
        InvalidModel: with line and column.
    """
    if len(content) > MAX_BYTES:
        raise InvalidModel(f"{path} has {len(content)} bytes, more than {MAX_BYTES}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidModel(f"{path} is not UTF-8: line {line}, byte {error.start} of the file") from error
    try:
        tree = textproto.parse(text)
    except textproto.ParseError as error:
        raise InvalidModel(f"{path} cannot be parsed: {error}") from error
    return _Reader(text, tree, path).config()


def new(text: str, schema: Schema) -> ModelConfig:
    """A config for a model that brought none: some lines of ours, and the schema's tensors."""
    return read(read(text.encode()).rewritten(schema))


class _Reader:
    """Checks the kinds of known fields on the way."""

    def __init__(self, text: str, tree: Message, path: str) -> None:
        self.text = text
        self.tree = tree
        self.path = path

    def config(self) -> ModelConfig:
        strings = {name: self.string(self.once(self.tree, name)) for name in sorted(_STRINGS - {"name"})}
        for name in sorted(_MESSAGES):
            self.message(self.once(self.tree, name))
        for found in self.tree.fields:
            if found.name == "name":
                self.string(found)
            if found.name in _REPEATED:
                self.messages(found)
        batch = self.once(self.tree, "max_batch_size")
        max_batch_size = self.integer(batch) if batch else 0
        if batch and not 0 <= max_batch_size < 2**31:
            self.fail(batch, f"max_batch_size is {max_batch_size}, 0 or more is expected")
        return ModelConfig(
            text=self.text,
            tree=self.tree,
            backend=strings["backend"],
            platform=strings["platform"],
            default_model_filename=strings["default_model_filename"],
            max_batch_size=max_batch_size,
            version_policy=self.version_policy(),
        )

    def version_policy(self) -> VersionPolicy:
        found = self.once(self.tree, "version_policy")
        if found is None:
            return VersionPolicy()
        policy = self.message(found)
        choices = [choice for name in _POLICIES if (choice := self.once(policy, name))]
        if len(choices) > 1:
            self.fail(choices[1], f"version_policy has both {choices[0].name} and {choices[1].name}")
        if not choices or choices[0].name == "all":
            return VersionPolicy(latest=None)
        body = self.message(choices[0])
        if choices[0].name == "latest":
            count = self.once(body, "num_versions")
            return VersionPolicy(latest=max(0, self.integer(count)) if count else 0)
        listed = body.all("versions")
        return VersionPolicy(latest=None, specific=tuple(self.whole(entry, item) for entry in listed for item in entry.values))

    def once(self, message: Message, name: str) -> Field | None:
        found = message.all(name)
        if len(found) > 1:
            self.fail(found[1], f"{name} is set twice")
        return found[0] if found else None

    def string(self, found: Field | None) -> str:
        if found is None:
            return ""
        if not isinstance(found.value, Scalar) or found.value.kind != "string":
            self.fail(found, f"{found.name} must be a string in quotes")
        return str(found.value.value)

    def integer(self, found: Field) -> int:
        if not isinstance(found.value, Scalar):
            self.fail(found, f"{found.name} must be a whole number")
        return self.whole(found, found.value)

    def whole(self, found: Field, value: Scalar | Message) -> int:
        if not isinstance(value, Scalar) or not isinstance(value.value, int):
            self.fail(found, f"{found.name} must be a whole number")
        return value.value

    def message(self, found: Field | None) -> Message:
        if found is None:
            return _EMPTY
        if not isinstance(found.value, Message):
            self.fail(found, f"{found.name} must be a message in braces")
        return found.value

    def messages(self, found: Field) -> None:
        if any(not isinstance(value, Message) for value in found.values):
            self.fail(found, f"{found.name} must be a message in braces, or a list of them")

    def fail(self, found: Field, problem: str) -> NoReturn:
        line, column = textproto.position(self.text, found.start)
        raise InvalidModel(f"{self.path} cannot be used: line {line}, column {column}: {problem}")
