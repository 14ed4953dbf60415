"""
Triton's messages as the JSON that its own HTTP front gives. Pure.

Names of the fields as they are, what is unset too, 64-bit numbers as numbers, FP32 in its shortest form. Source: measured on
Triton 2.51 against `/config` and `/stats`; Triton core `ModelConfigToJson`, over protobuf's JSON.
"""

from __future__ import annotations

import struct
from typing import Any

_TEXTS = frozenset({"inference.ModelSequenceBatching.InitialState.dims"})
"""64-bit numbers that Triton leaves as protobuf's JSON has them: as texts."""
_DIGITS_OF_FP32 = range(6, 10)


def json_of(message: Any) -> dict[str, Any]:
    """The message as an object of JSON."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name["value"]
            found[field.name] = {str(key): _value(entry, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_value(field, one) for one in value]
        elif not field.has_presence or message.HasField(field.name):
            found[field.name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return json_of(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name  # of a newer Triton
    if field.type == field.TYPE_FLOAT:
        return _shortest(value)
    return str(value) if field.full_name in _TEXTS else value


def _shortest(value: float) -> float:
    """The double with the fewest digits that is the same as FP32."""
    same = struct.pack("<f", value)
    texts = (float(f"{value:.{digits}g}") for digits in _DIGITS_OF_FP32)
    return next((found for found in texts if struct.pack("<f", found) == same), value)
