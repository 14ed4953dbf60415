"""
Whether protobuf would take the values in a config.pbtxt, told before Triton is asked.

Triton's own answer to a wrong value is "failed to poll from model repository", with the reason in its log only. So a
value that no version of Triton could take is refused here with line, column and what is expected. Fields that the
table does not know are newer than the table: neither such fields nor what is in them are judged. Neither is a new value
of an enum, unless the value is a known one in other words (`FP32`, `type_fp32`, `TYPE_FLOAT`): Triton adds values for
new meanings only. A string that is not UTF-8 is refused although Triton takes it: once the reason of a failed load
quotes such a string, Triton's index cannot be read for any model. Pure.

Source: protobuf's C++ `TextFormat::Parser`, which Triton reads with; where Python's `text_format` takes more, so does
this module.
"""

from __future__ import annotations

import re
from typing import NoReturn

from adapter.errors import InvalidModel
from adapter.layout.config_fields import ENUMS, MESSAGES, TOP, FieldKind
from adapter.layout.textproto import Field, Message, Scalar, Sequence, position
from adapter.layout.tree import shortened

_INTEGERS = {
    "int32": range(-(2**31), 2**31),
    "int64": range(-(2**63), 2**63),
    "uint32": range(2**32),
    "uint64": range(2**64),
}
_BOOLS = {"true": True, "True": True, "t": True, "false": False, "False": False, "f": False}
_SPECIAL_NUMBERS = re.compile(r"-?(inf(inity)?|nan)f?", re.IGNORECASE)
_SYNONYMS = {
    "float": "fp32", "float16": "fp16", "half": "fp16", "float32": "fp32", "single": "fp32", "float64": "fp64", "double": "fp64",
    "bfloat16": "bf16", "int": "int32", "integer": "int32", "uint": "uint32", "long": "int64", "short": "int16", "boolean": "bool",
    "str": "string", "bytes": "string", "text": "string", "cuda": "gpu",
}  # fmt: skip
"""What other frameworks call things that Triton has a word for."""


def check(text: str, config: Message, path: str) -> None:
    """
    Look at every field that is known, at any depth.

    Raises:
        InvalidModel: a value that cannot be in its field, or a field that is set twice; with line and column.
    """
    _Check(text, path).message(config, TOP)


def refuse(text: str, offset: int, path: str, problem: str) -> NoReturn:
    """Say what is wrong at this place of a config."""
    line, column = position(text, offset)
    raise InvalidModel(f"{path} cannot be used: line {line}, column {column}: {problem}")


class _Check:
    """One config on the way through its messages."""

    def __init__(self, text: str, path: str) -> None:
        self._text = text
        self._path = path

    def message(self, message: Message, type_name: str) -> None:
        taken: dict[str, Field] = {}
        for field in message.fields:
            if kind := MESSAGES[type_name].get(field.name):
                self._field(field, kind)
                if not kind.is_repeated:
                    self._once(field, kind, taken)

    def _once(self, field: Field, kind: FieldKind, taken: dict[str, Field]) -> None:
        """Protobuf cannot see that a field was set to its default before, unless the field is a message or in a oneof."""
        earlier = taken.get(kind.oneof or field.name)
        if earlier is not None and earlier.name == field.name:
            self._refuse(field, f"{field.name} is set twice")
        if earlier is not None:
            self._refuse(field, f"{field.name} and {earlier.name} are set, and only one of them can be")
        if kind.oneof or _differs_from_default(field.values[0], kind):
            taken[kind.oneof or field.name] = field

    def _field(self, field: Field, kind: FieldKind) -> None:
        if isinstance(field.value, Sequence) and not kind.is_repeated:
            self._refuse(field.value, f"{field.name} has one value, and this is a list")
        for value in field.values:
            if kind.type in MESSAGES:
                if not isinstance(value, Message):
                    self._refuse(value, f"{field.name} must be a message in braces{', or a list of them' if kind.is_repeated else ''}")
                self.message(value, kind.type)
            elif problem := _scalar_problem(value, kind.type):
                self._refuse(value, f"{field.name} {problem}")

    def _refuse(self, place: Field | Scalar | Message | Sequence, problem: str) -> NoReturn:
        refuse(self._text, place.start, self._path, problem)


def _scalar_problem(value: Scalar | Message, kind: str) -> str | None:
    """Why this value cannot be of this kind, or None. Follows the field's name."""
    form, content = (value.kind, value.value) if isinstance(value, Scalar) else ("message", "")
    if kind in ENUMS:
        return _enum_problem(form, content, ENUMS[kind])
    if kind in _INTEGERS:
        return _integer_problem(form, content, _INTEGERS[kind])
    if kind == "string":
        problem = "is not UTF-8" if any("\ud800" <= letter <= "\udfff" for letter in str(content)) else None
        return problem if form == "string" else "must be a string in quotes"
    if kind == "bool":
        return None if (form == "word" and content in _BOOLS) or (form == "integer" and content in (0, 1)) else "must be true or false"
    is_number = form in ("integer", "float") or (form == "word" and _SPECIAL_NUMBERS.fullmatch(str(content)) is not None)
    return None if is_number else "must be a number"


def _integer_problem(form: str, content: str | int, whole: range) -> str | None:
    if form != "integer":
        return "must be a whole number"
    return None if content in whole else f"must be from {whole[0]} to {whole[-1]}"


def _enum_problem(form: str, content: str | int, values: tuple[str, ...]) -> str | None:
    if form == "integer":
        return None if content in _INTEGERS["int32"] else "must be a word"
    word = str(content)
    meant = word if word in values else _meant(word, values)
    if form != "word" or word.startswith("-"):
        return f"must be a word without quotes, for instance {meant or values[-1]}"
    return None if meant in (None, word) else f"cannot be {shortened(word)}; {meant} seems to be meant"


def _meant(word: str, values: tuple[str, ...]) -> str | None:
    """The known value that this word says in another way; None where it may be a new one."""
    prefix = _plain(values[0].partition("_")[0])
    known = {_plain(value).removeprefix(prefix): value for value in values}
    said = _plain(word).removeprefix(prefix)
    return known.get(said) or known.get(_SYNONYMS.get(said, said))


def _plain(word: str) -> str:
    return word.replace("_", "").lower()


def _differs_from_default(value: Scalar | Message, kind: FieldKind) -> bool:
    if isinstance(value, Message):
        return True
    if kind.type in ENUMS:
        return value.value not in (0, ENUMS[kind.type][0])
    if kind.type == "bool":
        return bool(_BOOLS.get(str(value.value), value.value))
    return bool(re.search("[1-9]", str(value.value).lower().partition("e")[0])) if value.kind == "float" else bool(value.value)
