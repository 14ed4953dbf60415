"""
`config.pbtxt`: what the layout must know of it, and the changes that the adapter makes.

Protobuf judges the text, and says what is in it. Triton's own answer to a wrong value is "failed to poll from model
repository", with the reason in its log only. Fields that Triton's messages do not have are newer than the messages: neither
such fields nor what is in them are judged. Neither is a new value of an enum, unless the value is a known one in other
words (`FP32`, `type_fp32`, `TYPE_FLOAT`): Triton adds values for new meanings only. A string that is not UTF-8 is refused
although Triton takes it: once the reason of a failed load quotes such a string, Triton's index cannot be read for any model.

The rewriting: the top-level `name` goes (the directory's name, which is the model id, takes its place), the schema's tensors
come in, and other models get new names. The schema decides which tensors exist, in which order, their type and dims; an entry
of the same name keeps its other fields (reshape, format, labels) and its comments, entries of other names go. Everything else
stays as it was written, whether anyone here knows the field or not, to the byte: a comment need not be UTF-8. Pure.

Other models: an ensemble names its composing models in `ensemble_scheduling.step[].model_name`. A python model that calls
others (BLS) can say so too: every entry of `parameters` whose key begins with `bls_model.` has the name of a model as its
`string_value`, and the model reads it from its own config:

    parameters { key: "bls_model.tokenizer" value { string_value: "tokenizer" } }
    name = json.loads(args["model_config"])["parameters"]["bls_model.tokenizer"]["string_value"]

The parameter `tensorrt_llm_model_name` of TensorRT-LLM's stock BLS model counts too.

Source: triton-inference-server/common `model_config.proto`, as tritonclient brings it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from google.protobuf import text_format

from adapter.errors import InvalidModel
from adapter.layout.schema import Schema, Tensor
from adapter.layout.textproto import Edit, Field, Problem, Value, inner, position, quoted, scan, splice, tokens, unquoted
from adapter.layout.tree import shortened
from adapter.stubs import model_config_pb2

FILE_NAME = "config.pbtxt"
MAX_BYTES = 1024 * 1024
"""Far above any real one; reading takes less than 5 s per MiB at worst."""
BLS_KEY = "bls_model."
TENSORRT_LLM_KEY = "tensorrt_llm_model_name"
"""What TensorRT-LLM's stock BLS model calls such a parameter."""
_NAMES = "tensorrt_plan onnxruntime_onnx tensorflow_savedmodel tensorflow_graphdef pytorch_libtorch pytorch_aoti ensemble"
PLATFORMS = {name: name.partition("_")[0] for name in _NAMES.split()} | {"torch_aoti": "pytorch"}
"""What Triton knows by an older word → the backend that serves it."""
_GPU_BACKENDS = ("tensorrt", "onnxruntime", "pytorch")
ALL_GPUS = 1000
"""More than a machine has."""
MOST_REQUESTS = 2**31 - 1
"""ModelMesh reads their number as Java's int."""
_SHARING_PARAMETERS = ("ENABLE_WEIGHT_SHARING", "share_session_between_instances")
"""Of PyTorch's backend and of ONNX Runtime's. Source: their READMEs."""
_SYNONYMS = {
    "float": "fp32", "float32": "fp32", "float16": "fp16", "half": "fp16", "float64": "fp64", "double": "fp64", "bfloat16": "bf16",
    "int": "int32", "integer": "int32", "long": "int64", "boolean": "bool", "str": "string", "bytes": "string", "cuda": "gpu",
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
    """A config; an absent one is an empty one."""

    text: str
    fields: tuple[Field, ...]
    """Those of the text."""
    said: Any
    """What protobuf reads in it: Triton's `ModelConfig`, without what is newer than that."""

    @property
    def is_ensemble(self) -> bool:
        """Whether Triton only routes tensors between other models: nothing is loaded from files."""
        return self.said.platform == "ensemble" or bool(self.said.HasField("ensemble_scheduling"))

    def backend(self, otherwise: str = "") -> str:
        """What serves the model: the config's backend, or that of its platform; where it says neither, this one, of the model's type."""
        platform = str(self.said.platform)
        return "ensemble" if self.is_ensemble else self.said.backend or PLATFORMS.get(platform, platform) or otherwise

    @property
    def concurrency(self) -> int:
        """
        Parallel requests that keep the model busy: one for each instance; with dynamic batching one batch runs while the next fills.

        Source: Triton's `model_configuration.md`, instance groups and scheduling.
        """
        said = self.said
        instances = sum(max(1, group.count) * max(1, len(group.gpus)) for group in said.instance_group if not group.passive) or 1
        if said.HasField("dynamic_batching"):
            instances = 2 * instances * max(1, said.max_batch_size) + said.dynamic_batching.default_queue_policy.max_queue_size
        return min(instances, MOST_REQUESTS)

    def copies(self, otherwise: str) -> int:
        """
        How often one device, or the host, holds the model's files: once for each instance there.

        Measured with onnxruntime 1.31.1 on a CPU: one to four sessions of a model with 100 MiB of weights take 101, 205, 309 and
        409 MiB, so nothing is shared, and Triton's backend makes a session for each instance. Instances of a python model are
        processes. Rules of thumb, not measured: TensorRT's instances on one GPU share an engine, those of other backends share
        nothing that no parameter says. Without an instance group it is once, though Triton makes two instances of an ONNX model on a
        CPU (core's `SetDefaultInstanceCount`): the adapter does not know on what Triton runs.
        """
        said = self.said
        if self.backend(otherwise) == "tensorrt":
            return 1
        if any(said.parameters[name].string_value.lower() == "true" for name in _SHARING_PARAMETERS if name in said.parameters):
            return 1
        held: Counter[object] = Counter()
        for group in said.instance_group:
            held.update(dict.fromkeys([("gpu", gpu) for gpu in group.gpus] or [group.kind], max(1, group.count)))
        return max(held.values(), default=1)

    def gpus(self, otherwise: str) -> int:
        """
        How many GPUs certainly hold the model, of those that Triton has: all where no instance group names one.

        Without an instance group, or of KIND_AUTO, Triton takes all GPUs; but models of other backends may have nothing there.
        """
        said = self.said
        if named := {gpu for group in said.instance_group for gpu in group.gpus}:
            return len(named)
        group = model_config_pb2.ModelInstanceGroup
        kinds = {group.kind for group in said.instance_group} or {group.KIND_AUTO}
        on_gpus = kinds - {group.KIND_CPU} if self.backend(otherwise) in _GPU_BACKENDS else kinds & {group.KIND_GPU}
        return ALL_GPUS if on_gpus else 0

    def served(self, versions: Iterable[str]) -> tuple[str, ...]:
        """Those of the existing versions that Triton loads, highest first."""
        existing = sorted(versions, key=int, reverse=True)
        said = self.said.version_policy
        if said.HasField("specific"):
            named = frozenset(said.specific.versions)
            return tuple(name for name in existing if int(name) in named)
        most = said.latest.num_versions if said.HasField("latest") else None if self.said.HasField("version_policy") else 1
        return tuple(existing[:most])

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """Every other model that the config names, in the order of the text, steps first."""
        steps = inner(self.fields, "ensemble_scheduling", "step", "model_name")
        found = [Reference(unquoted(self.text, step), "an ensemble step", True, step) for step in steps]
        for entry in inner(self.fields, "parameters"):
            keys = [unquoted(self.text, key) for key in inner(entry.fields, "key")]
            if len(keys) == 1 and (keys[0] == TENSORRT_LLM_KEY or keys[0].startswith(BLS_KEY)):
                names = inner(entry.fields, "value", "string_value")
                found += [Reference(unquoted(self.text, name), f"the parameter {keys[0]}", False, name) for name in names]
        return tuple(found)

    def rewritten(self, schema: Schema, names: Mapping[str, str] = {}) -> bytes:
        """
        The file as Triton shall read it: without `name`, with the schema's tensors, and with new names for other models.

        Raises:
            InvalidModel: the config's own entries are in the way of the schema's.
        """
        edits = [Edit(found.start, found.end) for found in self.fields if found.name == "name"]
        edits += [*_tensor_edits(self, "input", schema.inputs), *_tensor_edits(self, "output", schema.outputs)]
        edits += [Edit(at.start, at.end, quoted(names[name])) for name, _, _, at in self.references if name in names]
        return splice(self.text, sorted(edits)).encode("utf-8", "surrogateescape")


def read(content: bytes, path: str = FILE_NAME) -> ModelConfig:
    """
    Parse a config.pbtxt. A byte order mark and an empty file are legal; `path` is for error texts.

    Raises:
        InvalidModel: Triton could not use it; with line and column.
    """
    if len(content) > MAX_BYTES:
        raise InvalidModel(f"{path} has {len(content)} bytes, more than {MAX_BYTES}")
    text = content.decode("utf-8-sig", "surrogateescape")
    failed = "parsed"
    try:
        fields = scan(text)
        failed = "used"
        said = _said(text, fields)
        if said.max_batch_size < 0:
            (*_, value) = inner(fields, "max_batch_size")
            raise Problem(value.start, f"max_batch_size is {said.max_batch_size}, 0 or more is expected")
    except Problem as problem:
        offset, words = problem.args
        raise InvalidModel(f"{path} cannot be {failed}: {position(text, offset)}: {words}") from problem
    return ModelConfig(text, fields, said)


def _said(text: str, fields: tuple[Field, ...]) -> Any:
    """What protobuf reads. Raises Problem: it does not take that, in its own words."""
    said = model_config_pb2.ModelConfig()
    scratch = splice(text, _newer(text, fields, said.DESCRIPTOR))
    found = list(tokens(scratch, 0, len(scratch)))
    try:  # a line for each token: its number tells the place, and spaces cost nothing
        text_format.ParseLines((token for *_, token in found), said)  # type: ignore[attr-defined] # the stubs leave it out
    except (text_format.ParseError, ValueError) as error:
        line = error.GetLine() if isinstance(error, text_format.ParseError) else None
        _, offset, _ = found[(line or len(found) - 1) - 1]
        is_text = not isinstance(error.__context__, UnicodeError)
        words = str(error).rpartition("': ")[2].rpartition(" : ")[2] if is_text else "not UTF-8"
        shown = "".join(letter if letter.isprintable() else "?" for letter in words[:200])
        raise Problem(offset, f"{_field_at(fields, offset)}: {shown}") from error
    return said


def _newer(text: str, fields: Iterable[Field], message: Any) -> Iterator[Edit]:
    """
    Makes fields that the message does not have spaces, and words that may be new values of an enum a number. All else keeps its place.

    Raises:
        Problem: an extension, or a word that no enum can have.
    """
    for found in fields:
        if found.name.startswith("["):
            raise Problem(found.start, f"{shortened(found.name)} is an extension, and Triton's config has none")
        known = message.fields_by_name.get(found.name)
        if known is None:
            yield Edit(found.start, found.end, " " * (found.end - found.start))
            continue
        for value in found.values:
            if value.kind == "message" and known.message_type is not None:
                yield from _newer(text, value.fields, known.message_type)
            elif value.kind != "message" and known.enum_type is not None:
                said, words = text[value.start : value.end], list(known.enum_type.values_by_name)
                meant = _meant(said.strip("\"'"), words)
                if meant not in (None, said):
                    raise Problem(value.start, f"{found.name} cannot be {shortened(said)}; {meant} seems to be meant")
                if value.kind == "word" and meant is None:
                    yield Edit(value.start, value.end, "9".ljust(len(said)))


def _field_at(fields: Iterable[Field], offset: int) -> str:
    """The name of the innermost field that has this place."""
    *_, found = (field for field in fields if field.start <= offset)
    deeper = [field for value in found.values for field in value.fields if field.start <= offset < value.end]
    return _field_at(deeper, offset) if deeper else found.name


def _meant(said: str, words: list[str]) -> str | None:
    """The known value that this word says, in another way too; None where it may be a new one."""
    prefix = _letters(words[0].partition("_")[0])
    known = {_letters(word).removeprefix(prefix): word for word in words}
    plain = _letters(said).removeprefix(prefix)
    return said if said in words else known.get(plain) or known.get(_SYNONYMS.get(plain, plain))


def _letters(word: str) -> str:
    return word.replace("_", "").lower()


def _tensor_edits(config: ModelConfig, side: str, tensors: tuple[Tensor, ...]) -> list[Edit]:
    """
    What to change in the config's text; the side is `input` or `output`.

    Raises:
        InvalidModel: the config has two entries of one name.
    """
    if not tensors:
        return []
    text, fields = config.text, [field for field in config.fields if field.name == side]
    entries: dict[str, Value] = {}
    for entry, known in zip(inner(fields, side), getattr(config.said, side), strict=True):
        if known.name and known.name in entries:
            place = position(text, entry.start)
            raise InvalidModel(f"config.pbtxt cannot be used: {place}: the {side} {shortened(known.name)} is there twice")
        entries[known.name] = entry
    if list(entries) == [tensor.name for tensor in tensors]:
        return [edit for tensor in tensors for edit in _entry_edits(entries[tensor.name], tensor)]
    block = "".join(_block(text, side, tensor, entries.get(tensor.name)) for tensor in tensors)
    if not fields:
        return [Edit(len(text), len(text), block if not text or text.endswith("\n") else "\n" + block)]
    first, *others = fields
    return [Edit(first.start, first.end, block), *(Edit(field.start, field.end) for field in others)]


def _block(text: str, side: str, tensor: Tensor, entry: Value | None) -> str:
    """One entry of its own, ending in a newline."""
    if entry is None:
        return f"{side} {{\n  name: {quoted(tensor.name)}\n  data_type: {tensor.data_type}\n  dims: {_dims(tensor)}\n}}\n"
    return f"{side} {splice(text, sorted(_entry_edits(entry, tensor)), entry.start, entry.end)}\n"


def _entry_edits(entry: Value, tensor: Tensor) -> list[Edit]:
    """Give an entry of the config the tensor's type and dims."""
    new = Edit(entry.start + 1, entry.start + 1, f" data_type: {tensor.data_type} dims: {_dims(tensor)}")
    return [new, *(Edit(field.start, field.end) for field in entry.fields if field.name in ("data_type", "dims"))]


def _dims(tensor: Tensor) -> str:
    return f"[ {', '.join(map(str, tensor.dims))} ]"
