"""
`config.pbtxt`: what the layout must know of it, and the changes that the adapter makes.

Protobuf judges the text, and says what is in it. Triton's own answer to a wrong value is "failed to poll from model
repository", with the reason in its log only. Fields that Triton's messages do not have are newer than the messages: neither
such fields nor what is in them are judged. Neither is a new value of an enum, unless the value is a known one in other
words (`FP32`, `type_fp32`, `TYPE_FLOAT`): Triton adds values for new meanings only. A string that is not UTF-8 is refused
although Triton takes it: once the reason of a failed load quotes such a string, Triton's index cannot be read for any model.

The rewriting: the top-level `name` goes (the directory's name, which is the model id, takes its place), the schema's tensors
come in, and other models get new names. Everything else stays as it was written, whether anyone here knows the field or
not, to the byte: a comment need not be UTF-8. Pure.

Other models: an ensemble names its composing models in `ensemble_scheduling.step[].model_name`. A python model that calls
others (BLS) can say so too: every entry of `parameters` whose key begins with `bls_model.` has the name of a model as its
`string_value`, and the model reads it from its own config:

    parameters { key: "bls_model.tokenizer" value { string_value: "tokenizer" } }
    name = json.loads(args["model_config"])["parameters"]["bls_model.tokenizer"]["string_value"]

The parameter `tensorrt_llm_model_name` of TensorRT-LLM's stock BLS model counts too.

Source: triton-inference-server/common `model_config.proto`, as tritonclient brings it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from adapter.errors import InvalidModel
from adapter.layout import textproto
from adapter.layout.schema import Schema, schema_edits
from adapter.layout.textproto import Edit, Field, Problem, Value, inner, position
from adapter.layout.tree import shortened
from adapter.stubs import model_config_pb2

FILE_NAME = "config.pbtxt"
MAX_BYTES = 1024 * 1024
"""Far above any real one; reading takes less than 5 s per MiB at worst."""
BLS_KEY = "bls_model."
TENSORRT_LLM_KEY = "tensorrt_llm_model_name"
"""What TensorRT-LLM's stock BLS model calls such a parameter."""
_EDITED = frozenset({"name", "input", "output", "ensemble_scheduling", "parameters"})
_WHOLE = re.compile("-?(0[xX][0-9a-fA-F]+|[0-9]+)")
_WHOLE_KINDS = {
    FieldDescriptor.CPPTYPE_INT32: (True, False, f"from {-(2**31)} to {2**31 - 1}"),
    FieldDescriptor.CPPTYPE_INT64: (True, True, f"from {-(2**63)} to {2**63 - 1}"),
    FieldDescriptor.CPPTYPE_UINT32: (False, False, f"from 0 to {2**32 - 1}"),
    FieldDescriptor.CPPTYPE_UINT64: (False, True, f"from 0 to {2**64 - 1}"),
}
"""Whether such numbers have signs, whether they are long, and which there are."""
_NEWER = 9
"""Stands for a value of an enum that may be newer than ours."""
_SYNONYMS = {
    "float": "fp32", "float16": "fp16", "half": "fp16", "float32": "fp32", "single": "fp32", "float64": "fp64", "double": "fp64",
    "bfloat16": "bf16", "int": "int32", "integer": "int32", "uint": "uint32", "long": "int64", "short": "int16", "boolean": "bool",
    "str": "string", "bytes": "string", "text": "string", "cuda": "gpu",
}  # fmt: skip
"""What other frameworks call things that Triton has a word for."""


class Reference(NamedTuple):
    """One place where a config names another model."""

    name: str
    where: str
    """For error texts."""
    is_step: bool
    """Triton loads it with the model that names it."""
    at: Value


@dataclass(frozen=True)
class ModelConfig:
    """A config. The default is an absent or empty file."""

    text: str = field(default="", repr=False)
    fields: tuple[Field, ...] = field(default=(), repr=False)
    """Those of the text in which there may be something to change."""
    said: Any = field(default_factory=model_config_pb2.ModelConfig, repr=False)
    """What protobuf reads in it: Triton's `ModelConfig`, without what is newer than that."""

    @property
    def is_ensemble(self) -> bool:
        """Whether Triton only routes tensors between other models: nothing is loaded from files."""
        return self.said.platform == "ensemble" or bool(self.said.HasField("ensemble_scheduling"))

    @property
    def says_backend(self) -> bool:
        """Whether Triton need not look into a version directory to find the backend."""
        return bool(self.said.backend or self.said.default_model_filename or self.said.platform)

    @property
    def is_decoupled(self) -> bool:
        """Whether the model answers a request any number of times; the vLLM backend sees to it, whatever its config says."""
        return self.said.backend == "vllm" or bool(self.said.model_transaction_policy.decoupled)

    @property
    def concurrency(self) -> int:
        """
        Parallel requests that keep the model busy: one for each instance; with dynamic batching one batch runs while the next fills.

        Source: Triton's `model_configuration.md`, instance groups and scheduling.
        """
        said = self.said
        instances = sum(max(1, group.count) * max(1, len(group.gpus)) for group in said.instance_group if not group.passive) or 1
        if not said.HasField("dynamic_batching"):
            return int(instances)
        queue = said.dynamic_batching.default_queue_policy.max_queue_size
        return int(2 * instances * max(1, said.max_batch_size) + queue)

    @property
    def policy(self) -> str:
        """What `version_policy` asks for, in words."""
        said = self.said.version_policy
        if said.HasField("specific"):
            return f"specific versions {', '.join(map(str, said.specific.versions)) or '(none)'}"
        return f"the latest {said.latest.num_versions}" if said.HasField("latest") else "all versions"

    def served(self, versions: Iterable[str]) -> tuple[str, ...]:
        """Those of the existing versions that Triton loads, highest first."""
        existing = sorted(versions, key=int, reverse=True)
        said = self.said.version_policy
        if said.HasField("specific"):
            return tuple(name for name in existing if int(name) in said.specific.versions)
        if said.HasField("latest"):
            return tuple(existing[: said.latest.num_versions])
        return tuple(existing if self.said.HasField("version_policy") else existing[:1])

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """Every other model that the config names, in the order of the text, steps first."""
        steps = inner(self.fields, "ensemble_scheduling", "step", "model_name")
        found = [Reference(textproto.unquoted(self.text, step), "an ensemble step", True, step) for step in steps]
        for entry in inner(self.fields, "parameters"):
            keys = [textproto.unquoted(self.text, key) for key in inner(entry.fields, "key")]
            if len(keys) == 1 and (keys[0] == TENSORRT_LLM_KEY or keys[0].startswith(BLS_KEY)):
                names = inner(entry.fields, "value", "string_value")
                found += [Reference(textproto.unquoted(self.text, name), f"the parameter {keys[0]}", False, name) for name in names]
        return tuple(found)

    @property
    def is_stock_bls(self) -> bool:
        """Whether this is TensorRT-LLM's stock BLS model."""
        return TENSORRT_LLM_KEY in self.said.parameters

    def rewritten(self, schema: Schema, names: Mapping[str, str] | None = None) -> bytes:
        """
        The file as Triton shall read it: without `name`, with the schema's tensors, and with new names for other models.

        Raises:
            InvalidModel: the config's own entries are in the way of the schema's.
        """
        edits = [textproto.removal(self.text, found) for found in self.fields if found.name == "name"]
        edits += schema_edits(self.text, self.fields, "input", self.said.input, schema.inputs)
        edits += schema_edits(self.text, self.fields, "output", self.said.output, schema.outputs)
        edits += [Edit(at.start, at.end, textproto.quoted(names[name])) for name, _, _, at in self.references if names and name in names]
        return textproto.splice(self.text, sorted(edits)).encode("utf-8", "surrogateescape")


def read(content: bytes, path: str = FILE_NAME) -> ModelConfig:
    """
    Parse a config.pbtxt. A byte order mark and an empty file are legal; `path` is for error texts.

    Raises:
        InvalidModel: Triton could not use it; with line and column.
    """
    if len(content) > MAX_BYTES:
        raise InvalidModel(f"{path} has {len(content)} bytes, more than {MAX_BYTES}")
    text = content.decode("utf-8-sig", "surrogateescape")
    said, failed = model_config_pb2.ModelConfig(), "parsed"
    try:
        fields = textproto.scan(text)
        failed = "used"
        _fill(said, text, fields)
        if said.max_batch_size < 0:
            (*_, value) = inner(fields, "max_batch_size")
            raise Problem(value.start, f"max_batch_size is {said.max_batch_size}, 0 or more is expected")
    except Problem as problem:
        offset, words = problem.args
        raise InvalidModel(f"{path} cannot be {failed}: {position(text, offset)}: {words}") from problem
    return ModelConfig(text, tuple(found for found in fields if found.name in _EDITED), said)


def _fill(message: Any, text: str, fields: Iterable[Field]) -> None:
    """
    Put into a message what it has a field for.

    Raises:
        Problem: protobuf would not take it, or an extension, or a word that no enum can have.
    """
    for found in fields:
        if found.name.startswith("["):
            raise Problem(found.start, f"{shortened(found.name)} is an extension, and Triton's config has none")
        known = message.DESCRIPTOR.fields_by_name.get(found.name)
        if known is None:
            continue
        if known.is_repeated:
            if not (found.values or found.has_colon or known.message_type):
                raise Problem(found.value_start, "expected ':'")
        else:
            _check_single(message, text, found, known)
        for value in found.values:
            if known.message_type is None:
                scalar = _scalar(text, found.name, value, known)
                getattr(message, found.name).append(scalar) if known.is_repeated else setattr(message, found.name, scalar)
            elif value.kind != "message":
                words = f"{found.name} must be a message in braces{', or a list of them' * known.is_repeated}"
                raise Problem(value.start, words)
            elif known.message_type.GetOptions().map_entry:
                entry: Any = GetMessageClass(known.message_type)()
                _fill(entry, text, value.fields)
                message.MergeFrom(type(message)(**{found.name: {entry.key: entry.value}}))
            else:
                inside = getattr(message, found.name)
                inside = inside.add() if known.is_repeated else inside
                inside.SetInParent()
                _fill(inside, text, value.fields)


def _check_single(message: Any, text: str, found: Field, known: Any) -> None:
    """Whether a field that has one value may get it. Protobuf cannot see that a default was set. Raises Problem."""
    if text.startswith("[", found.value_start):
        raise Problem(found.value_start, f"{found.name} has one value, and this is a list")
    if message.HasField(found.name) if known.has_presence else getattr(message, found.name):
        raise Problem(found.start, f"{found.name} is set twice")
    other = known.containing_oneof and message.WhichOneof(known.containing_oneof.name)
    if other:
        raise Problem(found.start, f"{found.name} and {other} are set, and only one of them can be")


def _scalar(text: str, name: str, value: Value, known: Any) -> Any:
    """What a value says. Raises Problem."""
    said, kind = text[value.start : value.end], known.cpp_type
    if value.kind == "number":  # a sign may stand apart
        said = re.sub(r"\s|#.*", "", said)
    if kind == known.CPPTYPE_ENUM:
        return _enum(name, value, said, known.enum_type.values_by_name)
    if kind == known.CPPTYPE_STRING:
        return _string(text, name, value)
    words = "true or false" if kind == known.CPPTYPE_BOOL else "a number"
    try:
        if kind not in _WHOLE_KINDS:
            return text_format.ParseBool(said) if kind == known.CPPTYPE_BOOL else text_format.ParseFloat(said)
        is_signed, is_long, bounds = _WHOLE_KINDS[kind]
        words = bounds if _WHOLE.fullmatch(said) else "a whole number"
        return text_format.ParseInteger(said, is_signed, is_long)
    except ValueError as error:
        raise Problem(value.start, f"{name} must be {words}") from error


def _string(text: str, name: str, value: Value) -> str:
    if value.kind != "string":
        raise Problem(value.start, f"{name} must be a string in quotes")
    try:
        return textproto.unquoted(text, value)
    except UnicodeError as error:
        raise Problem(value.start, f"{name} is not UTF-8") from error


def _enum(name: str, value: Value, said: str, numbers: Mapping[str, Any]) -> int:
    """The number of a value of an enum; one that none has for a word that may be newer than these. Raises Problem."""
    words = list(numbers)
    meant = said if said in words else _meant(said.strip("\"'"), words)
    if value.kind == "word" and meant not in (None, said):
        raise Problem(value.start, f"{name} cannot be {shortened(said)}; {meant} seems to be meant")
    if value.kind == "word":
        return int(numbers[said].number) if meant else _NEWER
    try:
        return text_format.ParseInteger(said, is_signed=True)
    except ValueError as error:
        raise Problem(value.start, f"{name} must be a word without quotes, for instance {meant or words[-1]}") from error


def _meant(said: str, words: list[str]) -> str | None:
    """The known value that this word says in another way; None where it may be a new one."""
    prefix = _letters(words[0].partition("_")[0])
    known = {_letters(word).removeprefix(prefix): word for word in words}
    plain = _letters(said).removeprefix(prefix)
    return known.get(plain) or known.get(_SYNONYMS.get(plain, plain))


def _letters(word: str) -> str:
    return word.replace("_", "").lower()
