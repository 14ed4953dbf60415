"""
Bringing a schema's tensors into a config's `input` and `output` lists.

The schema decides which tensors exist, in which order, their type and dims. A config entry of the
same name keeps its other fields (reshape, format, labels) and its comments; entries of other names
go. An empty list in the schema changes nothing. Owns these edits and nothing else. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from adapter.errors import InvalidModel
from adapter.layout.schema import Tensor
from adapter.layout.textproto import Edit, Field, Value, inner, position, quoted, removal, splice, unquoted
from adapter.layout.tree import shortened


def edits(text: str, config: Iterable[Field], side: str, tensors: tuple[Tensor, ...]) -> list[Edit]:
    """
    What to change in the config's text; the side is `input` or `output`.

    Raises:
        InvalidModel: the config has two entries of one name.
    """
    if not tensors:
        return []
    fields = [field for field in config if field.name == side]
    entries = _entries(text, fields, side)
    if list(entries) == [tensor.name for tensor in tensors] and len(entries) == sum(len(field.values) for field in fields):
        return [edit for tensor in tensors for edit in _entry_edits(text, entries[tensor.name], tensor)]
    block = "".join(_block(text, side, tensor, entries.get(tensor.name)) for tensor in tensors)
    if not fields:
        return [Edit(len(text), len(text), block if not text or text.endswith("\n") else "\n" + block)]
    first, *others = fields
    is_last_on_line = text[first.end : first.end + 1] in ("", "\n")
    return [Edit(first.start, first.end, block.rstrip("\n") if is_last_on_line else block), *(removal(text, field) for field in others)]


def _entries(text: str, fields: list[Field], side: str) -> dict[str, Value]:
    """The config's entries that have a name, by name."""
    found: dict[str, Value] = {}
    for entry in inner(fields, side):
        names = [unquoted(text, name) for name in inner(entry.fields, "name")]
        if len(names) == 1 and names[0] in found:
            place = position(text, entry.start)
            raise InvalidModel(f"config.pbtxt cannot be used: {place}: the {side} {shortened(names[0])} is there twice")
        if len(names) == 1:
            found[names[0]] = entry
    return found


def _block(text: str, side: str, tensor: Tensor, entry: Value | None) -> str:
    """One entry of its own, ending in a newline."""
    if entry is None:
        return f"{side} {{\n  name: {quoted(tensor.name)}\n  data_type: {tensor.data_type}\n  {_dims(tensor)}\n}}\n"
    return f"{side} {splice(text, sorted(_entry_edits(text, entry, tensor)), entry.start, entry.end)}\n"


def _entry_edits(text: str, entry: Value, tensor: Tensor) -> list[Edit]:
    """Give an entry of the config the tensor's type and dims, unless it has them."""
    changes: list[Edit] = []
    missing = ""
    for name, wanted, values in (
        ("data_type", f"data_type: {tensor.data_type}", [tensor.data_type]),
        ("dims", _dims(tensor), list(map(str, tensor.dims))),
    ):
        fields = [field for field in entry.fields if field.name == name]
        if not fields:
            missing += f" {wanted} "
        elif [text[value.start : value.end] for value in inner(fields, name)] != values:
            changes.append(Edit(fields[0].start, fields[0].value_end, wanted))
            changes += [removal(text, field) for field in fields[1:]]
    return [Edit(entry.start + 1, entry.start + 1, missing), *changes] if missing else changes


def _dims(tensor: Tensor) -> str:
    return f"dims: [ {', '.join(map(str, tensor.dims))} ]"
