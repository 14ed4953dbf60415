"""Texts of settings become values with a unit, or a sentence that says what was expected."""

from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter import units
from adapter.settings import kinds
from adapter.units import Endpoint

GOOD: list[tuple[Callable[[str], Any], str, Any]] = [
    (units.parse_port, "8085", 8085),
    (units.parse_port, " 1 ", 1),
    (kinds.OPTIONAL_PORT.parse, "0", 0),
    (kinds.OPTIONAL_PORT.parse, "65535", 65535),
    (units.parse_int, "-7", -7),
    (kinds.LOADS.parse, "1", 1),
    (kinds.LOADS.parse, "2147483647", 2**31 - 1),
    (kinds.REQUESTS_OR_NONE.parse, "0", 0),
    (units.parse_number, "1.25", 1.25),
    (units.parse_number, "1e3", 1000.0),
    (units.parse_number, " .5 ", 0.5),
    (units.parse_bytes, "0", 0),
    (units.parse_bytes, "-1", -1),
    (units.parse_bytes, "1000000", 1_000_000),
    (units.parse_bytes, "512MiB", 512 * 2**20),
    (units.parse_bytes, "512 Mi", 512 * 2**20),
    (units.parse_bytes, "1.5Gi", 3 * 2**29),
    (units.parse_bytes, "2G", 2_000_000_000),
    (units.parse_bytes, "2gb", 2_000_000_000),
    (units.parse_bytes, "64k", 64_000),
    (units.parse_bytes, "1Ti", 2**40),
    (units.parse_bytes, "100b", 100),
    (units.parse_bytes, "9.007199254740993T", 9_007_199_254_740),
    (units.parse_bool, "TRUE", True),
    (units.parse_bool, "t", True),
    (units.parse_bool, "1", True),
    (units.parse_bool, " off ", False),
    (units.parse_bool, "F", False),
    (kinds.OPTIONAL_BOOLEAN.parse, "Auto", None),
    (kinds.OPTIONAL_BOOLEAN.parse, "no", False),
    (kinds.parse_absolute_path, "/models", Path("/models")),
    (kinds.parse_networks, "", ()),
    (kinds.parse_networks, " , ", ()),
    (kinds.parse_networks, "127.0.0.0/8, ::1,10.1.2.3", (ip_network("127.0.0.0/8"), ip_network("::1/128"), ip_network("10.1.2.3/32"))),
    (units.parse_endpoint, "port:8085", Endpoint(host="localhost", port=8085)),
    (units.parse_endpoint, "localhost:8085", Endpoint(host="localhost", port=8085)),
    (units.parse_endpoint, "10.0.0.1:1", Endpoint(host="10.0.0.1", port=1)),
    (units.parse_endpoint, "[::1]:8085", Endpoint(host="[::1]", port=8085)),
    (units.parse_endpoint, "unix:/tmp/mm.sock", Endpoint(socket=Path("/tmp/mm.sock"))),
    (units.parse_endpoint, "unix:///tmp/mm.sock", Endpoint(socket=Path("/tmp/mm.sock"))),
    (units.parse_endpoint, "unix:/p/t.sock:8001", Endpoint(socket=Path("/p/t.sock:8001"))),
    (kinds.LOG_LEVEL.parse, "WARN", "warning"),
    (kinds.LOG_LEVEL.parse, "Info", "info"),
    (kinds.LOG_LEVEL.parse, "fatal", "error"),
    (kinds.LOG_FORMAT.parse, "json", "json"),
]

BAD: list[tuple[Callable[[str], Any], str, str]] = [
    (kinds.parse_networks, "127.0.0.0/8;::1", "'127.0.0.0/8;::1' does not appear to be an IPv4 or IPv6 network"),
    (kinds.parse_networks, "::1,localhost", "'localhost' does not appear"),
    (kinds.parse_networks, "10.0.0.0/33", "'10.0.0.0/33' does not appear"),
    (units.parse_port, "0", "is not a port"),
    (units.parse_port, "65536", "is not a port"),
    (units.parse_port, "8085x", "is not a whole number"),
    (units.parse_port, "", "is not a whole number"),
    (kinds.OPTIONAL_PORT.parse, "-1", "is not a port"),
    (units.parse_int, "1.0", "is not a whole number"),
    (units.parse_int, "1_000", "is not a whole number"),
    (units.parse_int, "9" * 5000, "is not a whole number"),
    (kinds.LOADS.parse, "0", "must be 1 or more"),
    (kinds.LOADS.parse, "2147483648", "is too large"),
    (kinds.REQUESTS_OR_NONE.parse, "-1", "must be 0 or more"),
    (units.parse_number, "0", "greater than 0"),
    (units.parse_number, "-1.5", "greater than 0"),
    (units.parse_number, "1e999", "greater than 0"),
    (units.parse_number, "nan", "is not a number"),
    (units.parse_number, "inf", "is not a number"),
    (units.parse_number, "1_0", "is not a number"),
    (units.parse_number, "0x10", "is not a number"),
    (units.parse_bytes, "", "is not a size"),
    (units.parse_bytes, "lots", "is not a size"),
    (units.parse_bytes, "1.5", "is not a size"),
    (units.parse_bytes, "-1Mi", "is not a size"),
    (units.parse_bytes, "5 parsecs", "is not a size"),
    (units.parse_bytes, "9" * 30, "more bytes than"),
    (units.parse_bytes, "9" * 400 + "Ti", "more bytes than"),
    (units.parse_bytes, "8388608Ti", "more bytes than"),
    (units.parse_bool, "2", "neither true nor false"),
    (units.parse_bool, "ja", "neither true nor false"),
    (kinds.OPTIONAL_BOOLEAN.parse, "maybe", "neither true nor false"),
    (kinds.parse_absolute_path, "models", "must be an absolute path"),
    (kinds.parse_absolute_path, "/models/../etc", "must be an absolute path"),
    (units.parse_endpoint, "8085", "is not an endpoint"),
    (units.parse_endpoint, ":8085", "is not an endpoint"),
    (units.parse_endpoint, "::1:8085", "is not an endpoint"),
    (units.parse_endpoint, "http://host:80", "is not an endpoint"),
    (units.parse_endpoint, "port:8085x", "is not a whole number"),
    (units.parse_endpoint, "host:0", "is not a port"),
    (units.parse_endpoint, "unix:mm.sock", "is not a unix socket"),
    (units.parse_endpoint, "unix:/folder/", "is not a unix socket"),
    (units.parse_endpoint, "unix:/" + "x" * 107, "is too long for a unix socket"),
    (kinds.LOG_LEVEL.parse, "loud", "is none of debug, info, warning, error"),
    (kinds.LOG_FORMAT.parse, "xml", "is none of auto, json, text"),
]


@pytest.mark.parametrize(("parse", "text", "value"), GOOD)
def test_good_text_has_its_value(parse: Callable[[str], Any], text: str, value: object) -> None:
    """With the unit that the setting has."""
    assert parse(text) == value


@pytest.mark.parametrize(("parse", "text", "words"), BAD)
def test_bad_text_is_refused_with_what_was_found(parse: Callable[[str], Any], text: str, words: str) -> None:
    """And with what is expected."""
    with pytest.raises(ValueError, match=words) as caught:
        parse(text)

    found = str(caught.value).split("'")[1]
    assert found in text
    assert found or not text


@settings(deadline=None)
@given(text=st.text(max_size=40))
@pytest.mark.parametrize("parse", sorted({parse for parse, _, _ in BAD}, key=lambda parse: parse.__name__))
def test_any_text_is_a_value_or_a_sentence(parse: Callable[[str], Any], text: str) -> None:
    """Nothing but ValueError ever leaves a parser."""
    try:
        parse(text)
    except ValueError as error:
        assert len(str(error).split()) > 2


@pytest.mark.parametrize("text", ["localhost:8085", "[::1]:8085", "unix:/tmp/mm.sock"])
def test_endpoint_reads_back_as_it_prints(text: str) -> None:
    """The target is what gRPC takes, and what people are shown."""
    assert str(units.parse_endpoint(text)) == units.parse_endpoint(text).target == text


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 bytes"), (1023, "1023 bytes"), (2**20, "1 MiB (1048576 bytes)"), (3 * 2**29, "1536 MiB (1610612736 bytes)")]
)
def test_bytes_are_shown_for_people(count: int, shown: str) -> None:
    """Both the order and the exact number."""
    assert units.show_bytes(count) == shown
