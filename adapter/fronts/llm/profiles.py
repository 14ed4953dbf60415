"""
How each kind of backend is asked for text, and what its answers tell. Pure.

A profile is chosen by the inputs that a model has. Sources of names and shapes: vLLM backend `src/utils/request.py`; TensorRT-LLM
backend `all_models/inflight_batcher_llm` (ensemble and BLS) and `all_models/llmapi`; Triton's generate extension for any other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from adapter.fronts.llm.parameters import BadParameter, BadPayload, Wishes
from adapter.fronts.llm.tensors import Inputs, numbers_of, texts_of
from adapter.inference import Failure, InferenceFailed, ModelInfo, Parameter, Tensor

PROMPT, TEXT = "text_input", "text_output"
_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Token:
    """One token, as far as its backend tells of it."""

    id: int | None
    text: str | None
    """Of an answer not yet put together: None where only the text of all tokens is known."""
    log_prob: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one answer brought for one prompt."""

    text: bytes
    tokens: Sequence[Token] | None = None
    """None: the backend does not tell."""
    reason: str | None = None
    """Why it was the last one: the backend's own word, or None."""
    stop: str | None = None
    """The stop sequence that was met; empty: it was the end-of-sequence token. None: not told."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """Of this answer alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What of a generation its caller will see, so the backend must tell."""

    is_stream: bool
    """An answer a token."""
    has_tokens: bool
    has_reason: bool


Request = tuple[Sequence[Tensor], Mapping[str, Parameter]]
"""Inputs, and parameters of the request."""


class Profile(Protocol):
    """One kind of backend."""

    name: str
    is_cumulative: bool
    """Each answer has the text from the beginning."""

    def level(self, info: ModelInfo) -> str:
        """What it tells of tokens: `ids` (and log probabilities), `log_probs`, or `text`."""
        ...

    def request(self, info: ModelInfo, prompts: Sequence[str], wishes: Wishes, question: Question) -> Request:
        """
        The inputs for these prompts, a row for each.

        Raises:
            BadParameter: the backend does not have a parameter that was given.
        """
        ...

    def piece(self, outputs: Mapping[str, Tensor], row: int, rows: int) -> Piece:
        """What an answer has for one row. Raises InferenceFailed: it cannot be read."""
        ...

    def repeats_prompt(self, info: ModelInfo) -> bool:
        """Whether its text may begin with the prompt."""
        ...


class Vllm:
    """The vLLM backend."""

    name, is_cumulative = "vllm", False
    names: Mapping[str, str] = {
        "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repetition_penalty",
        "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty", "ignore_eos_token": "ignore_eos",
        "min_length": "min_tokens", "bad_sequences": "bad_words", "stop_token_ids": "stop_token_ids",
        "include_stop_str_in_output": "include_stop_str_in_output", "skip_special_tokens": "skip_special_tokens",
        "spaces_between_special_tokens": "spaces_between_special_tokens", "truncate": "truncate_prompt_tokens", "adapter_id": "lora_name",
    }  # fmt: skip
    """LMI's name → vLLM's, in `SamplingParams`."""

    def request(self, info: ModelInfo, prompts: Sequence[str], wishes: Wishes, question: Question) -> Request:
        """As `Profile`."""
        _check(wishes, self.names, "vLLM")
        inputs = Inputs(info, len(prompts))
        sampling: dict[str, Any] = {self.names[name]: value for name, value in wishes.given.items()}
        sampling["max_tokens"] = wishes.max_new_tokens
        if wishes.is_greedy:
            sampling["temperature"] = 0
        if wishes.seed is not None:
            if wishes.seed > _INT64:
                raise BadParameter("seed", f"vLLM takes at most {_INT64}")
            sampling["seed"] = wishes.seed
        if wishes.stops:
            sampling["stop"] = list(wishes.stops)
        if question.has_tokens:
            sampling["logprobs"] = 0  # of the token itself, and of no other
        inputs.put(PROMPT, prompts, rows=True)
        inputs.put("sampling_parameters", [json.dumps(sampling)])
        flags = {
            "stream": question.is_stream,
            "exclude_input_in_output": True,
            "return_finish_reason": question.has_reason,
            "return_logprobs": question.has_tokens,
            "return_num_input_tokens": True,
            "return_num_output_tokens": True,
        }
        _put_flags(inputs, flags)
        return inputs.tensors, {}

    def piece(self, outputs: Mapping[str, Tensor], row: int, rows: int) -> Piece:
        """As `Profile`."""
        logprobs = texts_of(outputs.get("logprobs"))
        return Piece(
            text=_first(texts_of(outputs.get(TEXT)), row, rows) or b"",
            tokens=_vllm_tokens(logprobs[0]) if logprobs else None,
            reason=_word(_first(texts_of(outputs.get("finish_reason")), row, rows)),
            prompt_tokens=_count(_first(numbers_of(outputs.get("num_input_tokens")), row, rows)),
            output_tokens=_count(_first(numbers_of(outputs.get("num_output_tokens")), row, rows)),
        )

    def level(self, info: ModelInfo) -> str:
        """As `Profile`."""
        return "ids" if _takes(info, "return_logprobs") else "text"

    def repeats_prompt(self, info: ModelInfo) -> bool:
        """As `Profile`."""
        return not _takes(info, "exclude_input_in_output")


class TrtLlm:
    """TensorRT-LLM's ensemble or BLS model."""

    name, is_cumulative = "tensorrt_llm", False
    names: Mapping[str, Sequence[str]] = {
        "temperature": ("temperature",), "top_k": ("top_k",), "top_p": ("top_p",), "min_p": ("min_p",),
        "repetition_penalty": ("repetition_penalty",), "presence_penalty": ("presence_penalty",),
        "frequency_penalty": ("frequency_penalty",), "length_penalty": ("length_penalty", "len_penalty"),
        "min_length": ("min_length", "min_tokens"), "bad_sequences": ("bad_words",), "seed": ("seed", "random_seed"),
        "stop_sequences": ("stop_words",),
    }  # fmt: skip
    """LMI's name → inputs, of which the model has one."""
    defaults: Mapping[bool, Mapping[str, float]] = {False: {"top_k": 5, "top_p": 0.85}, True: {"top_k": 0, "top_p": 1.0}}
    """Of sampling, where they are not given: without them it would be greedy. LMI's (its schema says so), and TGI's."""

    def request(self, info: ModelInfo, prompts: Sequence[str], wishes: Wishes, question: Question) -> Request:
        """As `Profile`."""
        inputs = Inputs(info, len(prompts))
        inputs.put(PROMPT, prompts, rows=True)
        inputs.put("max_tokens", [wishes.max_new_tokens], parameter="max_new_tokens")
        given = _all_given(wishes)
        for name, value in given.items():
            _put(inputs, name, self.names.get(name, ()), value, "TensorRT-LLM")
        for name, value in ({"top_k": 1} if wishes.is_greedy else self.defaults[wishes.is_tgi]).items():
            if name not in given and inputs.has(name):
                inputs.put(name, [value])
        flags = {
            "stream": question.is_stream,
            "exclude_input_in_output": True,
            "return_log_probs": question.has_tokens,
            "return_num_input_tokens": True,
            "return_num_output_tokens": not question.is_stream,
        }
        _put_flags(inputs, flags)
        return inputs.tensors, {}

    def piece(self, outputs: Mapping[str, Tensor], row: int, rows: int) -> Piece:
        """As `Profile`. Log probabilities that are all zero are a buffer that nobody has filled."""
        values = numbers_of(outputs.get("output_log_probs")) if rows == 1 else []
        tokens = [Token(None, None, _finite(value)) for value in values] if any(values) else None
        return Piece(
            text=_first(texts_of(outputs.get(TEXT)), row, rows) or b"",
            tokens=tokens,
            prompt_tokens=_count(_first(numbers_of(outputs.get("num_input_tokens")), row, rows)),
            output_tokens=_count(_first(numbers_of(outputs.get("num_output_tokens")), row, rows)),
        )

    def level(self, info: ModelInfo) -> str:
        """As `Profile`."""
        return "log_probs" if _takes(info, "return_log_probs") else "text"

    def repeats_prompt(self, info: ModelInfo) -> bool:
        """As `Profile`."""
        return not _takes(info, "exclude_input_in_output")


class LlmApi:
    """TensorRT-LLM's LLM API. Each answer of a stream has the text from the beginning."""

    name, is_cumulative = "tensorrt_llm_api", True
    names: Mapping[str, Sequence[str]] = {
        name: (f"sampling_param_{theirs}",)
        for name, theirs in (
            ("temperature", "temperature"), ("top_k", "top_k"), ("top_p", "top_p"), ("seed", "seed"), ("stop_sequences", "stop"),
            ("frequency_penalty", "frequency_penalty"), ("presence_penalty", "presence_penalty"),
        )
    }  # fmt: skip

    def request(self, info: ModelInfo, prompts: Sequence[str], wishes: Wishes, question: Question) -> Request:
        """As `Profile`."""
        inputs = Inputs(info, len(prompts))
        inputs.put(PROMPT, prompts, rows=True)
        inputs.put("sampling_param_max_tokens", [wishes.max_new_tokens], parameter="max_new_tokens")
        for name, value in _all_given(wishes).items():
            _put(inputs, name, self.names.get(name, ()), value, "TensorRT-LLM's LLM API")
        if wishes.is_greedy and inputs.has("sampling_param_top_k"):
            inputs.put("sampling_param_top_k", [1])
        flags = {
            "streaming": question.is_stream,
            "sampling_param_exclude_input_from_output": True,
            "return_finish_reason": question.has_reason,
            "return_stop_reason": question.has_reason,
        }
        _put_flags(inputs, flags)
        return inputs.tensors, {}

    def piece(self, outputs: Mapping[str, Tensor], row: int, rows: int) -> Piece:
        """As `Profile`."""
        stops = texts_of(outputs.get("stop_reason"))
        return Piece(
            text=_first(texts_of(outputs.get(TEXT)), row, rows) or b"",
            reason=_word(_first(texts_of(outputs.get("finish_reason")), row, rows)),
            stop=(_word(_first(stops, row, rows)) or "") if stops else None,
        )

    def level(self, info: ModelInfo) -> str:
        """As `Profile`."""
        return "text"

    def repeats_prompt(self, info: ModelInfo) -> bool:
        """As `Profile`."""
        return not _takes(info, "sampling_param_exclude_input_from_output")


class PlainText:
    """Any other model from text to text: a parameter is an input of that name, where there is one, else a parameter of the request."""

    name, is_cumulative = "text", False

    def request(self, info: ModelInfo, prompts: Sequence[str], wishes: Wishes, question: Question) -> Request:
        """As `Profile`."""
        inputs = Inputs(info, len(prompts))
        inputs.put(PROMPT, prompts, rows=True)
        parameters: dict[str, Parameter] = {}
        for name, value in {"max_new_tokens": wishes.max_new_tokens, **_all_given(wishes)}.items():
            entry = inputs.first(name, "max_tokens") if name == "max_new_tokens" else inputs.first(name)
            if entry is not None:
                inputs.put(entry, value if isinstance(value, (list, tuple)) else [value], parameter=name)
            else:
                parameters[name] = value if isinstance(value, (bool, int, float, str)) else json.dumps(value)
        _put_flags(inputs, {"stream": question.is_stream})
        return inputs.tensors, parameters

    def piece(self, outputs: Mapping[str, Tensor], row: int, rows: int) -> Piece:
        """As `Profile`."""
        return Piece(text=_first(texts_of(outputs.get(TEXT)), row, rows) or b"")

    def level(self, info: ModelInfo) -> str:
        """As `Profile`."""
        return "text"

    def repeats_prompt(self, info: ModelInfo) -> bool:
        """As `Profile`."""
        return True


def profile_of(info: ModelInfo) -> Profile:
    """
    The profile of a model.

    Raises:
        BadPayload: it takes no text, or gives none.
    """
    if not _takes(info, PROMPT) or all(entry.name != TEXT for entry in info.outputs):
        raise BadPayload(f"the model {info.name!r} is no language model: it has no {PROMPT} and {TEXT}")
    if _takes(info, "sampling_parameters"):
        return Vllm()
    if _takes(info, "sampling_param_max_tokens"):
        return LlmApi()
    return TrtLlm() if _takes(info, "max_tokens") else PlainText()


def _takes(info: ModelInfo, name: str) -> bool:
    return any(entry.name == name for entry in info.inputs)


def _all_given(wishes: Wishes) -> dict[str, Any]:
    given: dict[str, Any] = dict(wishes.given)
    if wishes.stops:
        given["stop_sequences"] = list(wishes.stops)
    if wishes.seed is not None:
        given["seed"] = wishes.seed
    return given


def _check(wishes: Wishes, names: Mapping[str, Any], backend: str) -> None:
    if unknown := sorted(wishes.given.keys() - names.keys()):
        raise _lacking(unknown[0], backend)


def _lacking(name: str, backend: str) -> BadParameter:
    return BadParameter(name, f"this model cannot do that; its backend is {backend}")


def _put(inputs: Inputs, name: str, theirs: Sequence[str], value: Any, backend: str) -> None:
    found = inputs.first(*theirs)
    if found is None:
        raise _lacking(name, backend)
    inputs.put(found, value if isinstance(value, list) else [value], parameter=name)


def _put_flags(inputs: Inputs, flags: Mapping[str, bool]) -> None:
    for name, value in flags.items():
        if inputs.has(name):
            inputs.put(name, [value])


def _vllm_tokens(text: bytes) -> Sequence[Token] | None:
    """Of vLLM's list of `{id: {logprob, decoded_token, …}}`; the sampled token comes first. None: `null`, or no such list."""
    try:
        rows = json.loads(text)
        found = [next(iter(row.items())) for row in rows or ()]
        return None if rows is None else [Token(int(key), _text(entry), _finite(entry["logprob"])) for key, entry in found]
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
        return None


def _text(entry: Mapping[str, Any]) -> str | None:
    text = entry.get("decoded_token")
    return text if isinstance(text, str) else None


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _first(values: Sequence[Any], row: int, rows: int) -> Any:
    """The first value of a row; None: there is none. Raises InferenceFailed: the answer has fewer rows than were asked for."""
    if not values:
        return None
    if len(values) % rows:
        raise InferenceFailed(Failure.INTERNAL, f"the model has answered {rows} prompts with {len(values)} values")
    return values[row * (len(values) // rows)]


def _word(text: bytes | None) -> str | None:
    word = text.decode("utf-8", "replace") if text is not None else ""
    return None if word in ("", "None") else word


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)
