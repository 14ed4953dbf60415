"""What models of each kind of backend say of themselves, and answers as tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from adapter.fronts.llm.parameters import Wishes, wishes_of
from adapter.fronts.llm.tensors import Outputs, Row
from adapter.fronts.tensors import packed
from adapter.inference import ModelInfo
from adapter.settings.fronts import LlmSettings
from adapter.settings.kinds import read
from tests.messages import Info, Tensor, info_of, tensors_of
from tests.real.llm_models import LLM_API_INPUTS, LLM_API_OUTPUTS, TRTLLM_INPUTS, TRTLLM_OUTPUTS, VLLM_INPUTS, VLLM_OUTPUTS, Entry

PLAIN_INPUTS: Sequence[Entry] = (("text_input", "TYPE_STRING", "1", False),)
PLAIN_OUTPUTS: Sequence[Entry] = (("text_output", "TYPE_STRING", "1", False),)


def settings(**env: str) -> LlmSettings:
    """As with these variables."""
    problems: list[str] = []
    found = read(LlmSettings, env, problems)
    assert not problems
    assert isinstance(found, LlmSettings)
    return found


def an_info(
    inputs: Sequence[Entry], outputs: Sequence[Entry] = PLAIN_OUTPUTS, *, batch: int = 0, is_decoupled: bool = True, name: str = "m"
) -> ModelInfo:
    """As Triton tells it of such a config."""

    def entry(name: str, kind: str, dims: str) -> Any:
        shape = [int(dim) for dim in dims.split(",")]
        kind = kind.removeprefix("TYPE_").replace("STRING", "BYTES")
        return Info(name=name, datatype=kind, shape=[-1, *shape] if batch else shape)

    entries = [[entry(*found[:3]) for found in each] for each in (inputs, outputs)]
    return info_of(name, *entries, batch=batch, is_decoupled=is_decoupled)


VLLM = an_info(VLLM_INPUTS, VLLM_OUTPUTS)
TRTLLM = an_info(TRTLLM_INPUTS, TRTLLM_OUTPUTS, batch=8)
LLM_API = an_info(LLM_API_INPUTS, LLM_API_OUTPUTS)
PLAIN = an_info(PLAIN_INPUTS)


def wishes(is_tgi: bool = False, **parameters: Any) -> Wishes:
    """Of these parameters."""
    return wishes_of(parameters, is_tgi=is_tgi)


def values(request: Any) -> dict[str, Any]:
    """Name → elements of each input, floats in short; its shape is that many."""
    found: dict[str, Any] = {}
    tensors = tensors_of(request)
    row = Row(named(*tensors), 0, 1)
    for tensor in tensors:
        elements = [text.decode() for text in row.texts(tensor.name)] or [round(number, 5) for number in row.numbers(tensor.name)]
        assert math.prod(tensor.shape) == len(elements), tensor
        found[tensor.name] = elements
    return found


def numbers(name: str, datatype: str, *elements: float) -> Tensor:
    """An output of numbers."""
    return Tensor(name, datatype, [len(elements)], packed(name, datatype, list(elements), len(elements)))


def named(*tensors: Tensor) -> Outputs:
    """Outputs of an answer."""
    return {tensor.name: (tensor.datatype, tensor.data) for tensor in tensors}
