"""`serving.properties`: few names, and values that are checked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InvalidModel
from adapter.fronts.llm.routes import options_of
from adapter.settings.fronts import LlmSettings
from tests.unit.fronts.llm.rigs import settings

PLAIN = settings()


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("option.tgi_compat=true", {"is_tgi_compatible": True}),
        ("option.output_formatter=SSE", {"output_formatter": "sse"}),
        ("option.enable_streaming=True", {"is_streaming": True}),
        ("option.rolling_batch=disable", {"rolling_batch": "disable"}),
        ("option.rolling_batch=vllm", {"rolling_batch": "vllm"}),
        ("option.tensor_parallel_degree=4\r\nengine=MPI\n#option.tgi_compat=true", {}),
        ("  option.tgi_compat = true ", {"is_tgi_compatible": True}),
        ("option.tgi_compat=false\noption.tgi_compat=true", {"is_tgi_compatible": True}),
    ],
)
def test_what_counts(line: str, changed: dict[str, Any]) -> None:
    assert options_of(settings(), line.encode()) == replace(PLAIN, **changed)


@pytest.mark.parametrize("name", ["tgi_compat", "output_formatter", "enable_streaming", "rolling_batch"])
@pytest.mark.parametrize("value", ["", "maybe", "x" * 1000])
def test_another_value_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidModel, match=rf"serving\.properties: option\.{name}: .* is n") as refused:
        options_of(settings(), f"option.{name}={value}".encode())
    assert len(refused.value.text) < 300


ALL_ON = settings(
    OPTION_TGI_COMPAT="true",
    OPTION_OUTPUT_FORMATTER="sse",
    OPTION_ENABLE_STREAMING="true",
    OPTION_ROLLING_BATCH="disable",
)
ALL_OFF = b"""
option.tgi_compat=false
option.output_formatter=auto
option.enable_streaming=false
option.rolling_batch=auto
"""


def test_a_models_own_file_beats_the_settings() -> None:
    for properties in (None, b"", b"#"):
        assert options_of(ALL_ON, properties) == ALL_ON
    assert options_of(ALL_ON, ALL_OFF) == PLAIN


@given(st.binary() | st.text(st.sampled_from("option.tgi_compat=:\\u0 \n\r#!x"), max_size=80).map(str.encode))
def test_any_file_is_options_or_words(properties: bytes) -> None:
    with suppress(InvalidModel):
        assert isinstance(options_of(settings(), properties), LlmSettings)
