"""
Bringing a schema's tensors into a config's `input` and `output` lists.

The schema decides which tensors exist, in which order, their type and dims. A config entry of the
same name keeps its other fields (reshape, format, labels) and its comments; entries of other names
go. An empty list in the schema changes nothing. Owns these edits and nothing else. Pure.
"""

from __future__ import annotations

from adapter.errors import InvalidModel
from adapter.layout.schema import Tensor
from adapter.layout.textproto import Edit, Field, Message, Scalar, position, quoted, removal, splice
from adapter.layout.tree import shortened


def edits(text: str, config: Message, side: str, tensors: tuple[Tensor, ...]) -> list[Edit]:
    """
    What to change in the config's text; the side is `input` or `output`.

    Raises:
        InvalidModel: the config has two entries of one name.
    """
    if not tensors:
        return []
    fields = config.all(side)
    entries = _entries(text, fields, side)
    if list(entries) == [tensor.name for tensor in tensors] and len(entries) == sum(len(field.values) for field in fields):
        return [edit for tensor in tensors for edit in _entry_edits(text, entries[tensor.name], tensor)]
    block = "".join(_block(text, side, tensor, entries.get(tensor.name)) for tensor in tensors)
    if not fields:
        return [Edit(len(text), len(text), block if not text or text.endswith("\n") else "\n" + block)]
    first, *others = fields
    is_last_on_line = text[first.end : first.end + 1] in ("", "\n")
    return [Edit(first.start, first.end, block.rstrip("\n") if is_last_on_line else block), *(removal(text, field) for field in others)]


def _entries(text: str, fields: list[Field], side: str) -> dict[str, Message]:
    """The config's entries that have a name, by name."""
    found: dict[str, Message] = {}
    for entry in (value for field in fields for value in field.values if isinstance(value, Message)):
        names = entry.all("name")
        if len(names) != 1 or not isinstance(names[0].value, Scalar) or names[0].value.kind != "string":
            continue
        name = str(names[0].value.value)
        if name in found:
            line, column = position(text, entry.start)
            raise InvalidModel(f"config.pbtxt cannot be used: line {line}, column {column}: the {side} {shortened(name)} is there twice")
        found[name] = entry
    return found


def _block(text: str, side: str, tensor: Tensor, entry: Message | None) -> str:
    """One entry of its own, ending in a newline."""
    if entry is None:
        return f"{side} {{\n  name: {quoted(tensor.name)}\n  data_type: {tensor.data_type}\n  {_dims(tensor)}\n}}\n"
    return f"{side} {splice(text, _entry_edits(text, entry, tensor), entry.start, entry.end)}\n"


def _entry_edits(text: str, entry: Message, tensor: Tensor) -> list[Edit]:
    """Give an entry of the config the tensor's type and dims, unless it has them."""
    changes: list[Edit] = []
    missing = ""
    for name, wanted, is_same in (
        ("data_type", f"data_type: {tensor.data_type}", _type_of(entry) == tensor.data_type),
        ("dims", _dims(tensor), _dims_of(entry) == tensor.dims),
    ):
        fields = entry.all(name)
        if not fields:
            missing += f" {wanted} "
        elif not is_same:
            changes.append(Edit(fields[0].start, fields[0].value.end, wanted))
            changes += [removal(text, field) for field in fields[1:]]
    return [Edit(entry.start + 1, entry.start + 1, missing), *changes] if missing else changes


def _type_of(entry: Message) -> str | None:
    fields = entry.all("data_type")
    value = fields[0].value if len(fields) == 1 else None
    return str(value.value) if isinstance(value, Scalar) and value.kind == "word" else None


def _dims_of(entry: Message) -> tuple[int | str, ...]:
    return tuple(value.value for field in entry.all("dims") for value in field.values if isinstance(value, Scalar))


def _dims(tensor: Tensor) -> str:
    return f"dims: [ {', '.join(map(str, tensor.dims))} ]"
