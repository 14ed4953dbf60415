"""What models of each kind of backend say of themselves, and answers as tensors."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from adapter.fronts.llm.parameters import Wishes, wishes_of
from adapter.fronts.llm.tensors import numbers_of, texts_of
from adapter.fronts.tensors import packed
from adapter.inference import ModelInfo, Parameter, Tensor, TensorInfo
from adapter.settings.fronts import LlmSettings
from adapter.settings.kinds import read
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

    def entry(name: str, kind: str, dims: str) -> TensorInfo:
        shape = [int(dim) for dim in dims.split(",")]
        kind = kind.removeprefix("TYPE_").replace("STRING", "BYTES")
        return TensorInfo(name=name, datatype=kind, shape=[-1, *shape] if batch else shape)

    return ModelInfo(
        name=name,
        versions=("1",),
        platform="",
        inputs=[entry(*found[:3]) for found in inputs],
        outputs=[entry(*found[:3]) for found in outputs],
        is_decoupled=is_decoupled,
        max_batch_size=batch,
    )


VLLM = an_info(VLLM_INPUTS, VLLM_OUTPUTS)
TRTLLM = an_info(TRTLLM_INPUTS, TRTLLM_OUTPUTS, batch=8)
LLM_API = an_info(LLM_API_INPUTS, LLM_API_OUTPUTS)
PLAIN = an_info(PLAIN_INPUTS)


def wishes(is_tgi: bool = False, **parameters: Any) -> Wishes:
    """Of these parameters."""
    return wishes_of(parameters, is_tgi=is_tgi)


def values(tensors: Sequence[Tensor]) -> dict[str, Any]:
    """Name → elements of each input, floats in short; its shape is that many."""
    found: dict[str, Any] = {}
    for tensor in tensors:
        elements = [text.decode() for text in texts_of(tensor)] or [round(number, 5) for number in numbers_of(tensor)]
        count = 1
        for size in tensor.shape:
            count *= size
        assert count == len(elements), tensor
        found[tensor.name] = elements
    return found


def texts(name: str, *elements: str | bytes, shape: Sequence[int] | None = None) -> Tensor:
    """An output of texts."""
    data = b"".join(struct.pack("<I", len(text)) + text for text in (each.encode() if isinstance(each, str) else each for each in elements))
    return Tensor(name=name, datatype="BYTES", shape=shape or [len(elements)], data=data)


def numbers(name: str, datatype: str, *elements: float) -> Tensor:
    """An output of numbers."""
    return Tensor(name=name, datatype=datatype, shape=[len(elements)], data=packed(name, datatype, list(elements), len(elements)))


def named(*tensors: Tensor) -> Mapping[str, Tensor]:
    """Outputs of an answer by name."""
    return {tensor.name: tensor for tensor in tensors}


NO_PARAMETERS: Mapping[str, Parameter] = {}
