"""JSON of a stranger: NaN as a number, and everything else in words."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import StartError
from adapter.fronts.edge import rules_of
from adapter.fronts.failures import HttpError, parsed
from adapter.settings import read_group
from adapter.settings.capacity import memory_bytes
from adapter.settings.fronts import HttpSettings


def test_constants_are_numbers() -> None:
    found = parsed(b'{"data":[NaN,Infinity,-Infinity,1]}')["data"]
    assert math.isnan(found[0])
    assert found[1:] == [math.inf, -math.inf, 1]


DEEP = [(before * levels + "1" + after * levels).encode() for levels in (2_000, 250_000) for before, after in ("[]", ('{"a":', "}"))]
BESIDE_A_CONSTANT = [b"[" + b"9" * 5000 + b",NaN]", b'["\\ud800",NaN]', b'{"\\udfff":NaN}', b'"\xff",NaN']


@pytest.mark.parametrize(
    "text",
    [b"", b"{nope", b"\xff", b"NaN{", b'"\\ud800"', b"[1,]", b"[" * 3000 + b"NaN", b"[1e400]", *DEEP, *BESIDE_A_CONSTANT],
    ids=lambda text: repr(text)[:20],
)
def test_what_is_no_json_is_400(text: bytes) -> None:
    """A deep text does no harm; a constant does not admit what is refused without it."""
    with pytest.raises(HttpError) as refused:
        parsed(text)
    assert refused.value.status == 400


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_400(text: bytes) -> None:
    try:
        parsed(text)
    except HttpError as refused:
        assert refused.status == 400


def test_a_restricted_api_is_read() -> None:
    rules = rules_of("model-repository, model-config:X-Admin=s3cret=; inference:Authorization=Bearer a:b")
    assert rules == {
        **dict.fromkeys(("model-repository", "model-config"), ("X-Admin", "s3cret=")),
        "inference": ("Authorization", "Bearer a:b"),
    }


@pytest.mark.parametrize(
    "text", ["s3cret", "inference:X", "inference:X=", "inference:=s3cret", "nope:X=s3cret", "inference:X=s3cret;inference:Y=s3cret"]
)
def test_a_restricted_api_that_is_none_ends_the_start_and_shows_no_value(text: str) -> None:
    with pytest.raises(StartError) as refused:
        rules_of(text)
    assert "s3cret" not in str(refused.value)


def test_bodies_have_a_quarter_of_the_containers_memory() -> None:
    assert read_group(HttpSettings, {}).bodies_bytes == memory_bytes() // 4
    assert read_group(HttpSettings, {"HTTP_BODIES_BYTES": "1Mi"}).bodies_bytes == 2**20
