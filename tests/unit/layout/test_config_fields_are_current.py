"""The table of the config's fields says what Triton's own messages say."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from tritonclient.grpc import model_config_pb2

from adapter.layout import config_fields

SCALARS = {getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower() for name in dir(FieldDescriptor) if name.startswith("TYPE_")}


def described(message: Descriptor) -> Iterator[tuple[str, str]]:
    """Each message and enum below this one, with its line of the table."""
    yield short(message), ", ".join(map(field_text, message.fields))
    for inner in message.nested_types:
        yield from described(inner)
    for enum in message.enum_types:
        yield enum_line(enum)


def enum_line(enum: EnumDescriptor) -> tuple[str, str]:
    assert [value.number for value in enum.values] == list(range(len(enum.values))), "the table has no numbers"
    return f"enum {short(enum)}", " ".join(value.name for value in enum.values)


def field_text(field: FieldDescriptor) -> str:
    inner = field.message_type or field.enum_type
    oneof = field.containing_oneof
    assert inner is not None or oneof is not None or not field.has_presence, "a scalar that knows whether it was set would need a mark"
    return f"{field.name}:{short(inner) if inner else SCALARS[field.type]}{'*' * field.is_repeated}{f'/{oneof.name}' if oneof else ''}"


def short(described: Descriptor | EnumDescriptor) -> str:
    return described.full_name.removeprefix("inference.")


def test_the_table_is_that_of_the_messages():
    """Where it fails after an update of tritonclient, `config_fields.TABLE` becomes the expected text."""
    file = model_config_pb2.DESCRIPTOR
    lines = [line for message in file.message_types_by_name.values() for line in described(message)]
    lines += map(enum_line, file.enum_types_by_name.values())
    expected = "".join(
        textwrap.fill(f"{name}: {text}".rstrip(), 138, subsequent_indent="  ", break_long_words=False) + "\n"
        for name, text in sorted(lines)
    )

    assert expected == config_fields.TABLE
