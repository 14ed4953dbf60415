"""
How each kind of backend is asked for text, and what its answers tell: one profile for each. Pure.

Which backend a model has is told by its inputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from adapter.fronts.failures import HttpError
from adapter.fronts.llm.parameters import BadParameter, Wishes
from adapter.fronts.llm.tensors import MOST, Inputs, Outputs, Row
from adapter.inference import ModelInfo, Parameter, set_parameters

PROMPT, TEXT = "text_input", "text_output"
"""The input and the output that every language model has."""
_EXCLUDES = ("exclude_input_in_output", "sampling_param_exclude_input_from_output")
"""Inputs by which a backend is asked not to repeat the prompt."""
_NEVER_TOLD = frozenset({"n", "decoder_input_details", "logprobs", "prompt_logprobs", "top_n_tokens"})
"""What they ask for is no part of the answer of a model from text to text: it is one text."""
_INPUTS_ALONE = frozenset({"best_of", "num_beams", "grammar"})
"""Such a model says by an input that it can do these: a parameter of the request could be ignored without a sign."""


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


class Profile:
    """
    One kind of backend; here any model from text to text. The others differ in parts.

    A parameter is an input of that name, where there is one, else most are one of the request. Source: Triton's generate extension,
    parameters of a request.
    """

    name: ClassVar[str] = "text"
    title: ClassVar[str] = "text"
    """Of errors."""
    counts_in_streams: ClassVar[bool] = True
    """Each answer of a stream tells its own number of tokens."""
    is_cumulative: ClassVar[bool] = False
    """Each answer has the text from the beginning."""
    tells: ClassVar[tuple[str, str]] = ("", "text")
    """Input by which it is asked for tokens, and what it tells of them then."""

    def level(self, info: ModelInfo) -> str:
        """What it tells of tokens: `ids` (and log probabilities), `log_probs`, or `text`."""
        return self.tells[1] if takes(info, self.tells[0]) else "text"

    def repeats_prompt(self, info: ModelInfo) -> bool:
        """Whether its text may begin with the prompt."""
        return not any(takes(info, name) for name in _EXCLUDES)

    def request(self, info: ModelInfo, prompts: Sequence[str], wishes: Wishes) -> Any:
        """
        The ModelInferRequest for these prompts, a row for each; `wishes.is_stream`: an answer for each token.

        Raises:
            BadParameter: the backend does not have a parameter that was given.
        """
        inputs = Inputs(info, len(prompts))
        inputs.put(PROMPT, prompts, rows=True)
        self.fill(inputs, wishes)
        flags = {
            **dict.fromkeys(("stream", "streaming"), wishes.is_stream),
            **dict.fromkeys((*_EXCLUDES, "return_finish_reason", "return_stop_reason", "return_num_input_tokens"), True),
            **dict.fromkeys(("return_logprobs", "return_log_probs"), wishes.has_details),
            "return_num_output_tokens": self.counts_in_streams or not wishes.is_stream,
        }
        for name, value in flags.items():  # that backends have for what answers tell: the model takes some of them
            if takes(info, name):
                inputs.put(name, value)
        return inputs.request

    def fill(self, inputs: Inputs, wishes: Wishes) -> None:
        """Put what the caller has asked for, but the prompts. Raises BadParameter."""
        parameters: dict[str, Parameter] = {}
        for name, value in {"max_new_tokens": wishes.max_new_tokens, **wishes.given}.items():
            is_input = inputs.first(name) is not None
            if value and (name in _NEVER_TOLD or (name in _INPUTS_ALONE and not is_input)):
                raise self.lacking(name)
            if is_input:
                inputs.put(name, value)
            else:
                parameters[name] = value if isinstance(value, (bool, int, float, str)) else json.dumps(value)
        set_parameters(inputs.request, parameters)

    def piece(self, outputs: Outputs, row: int, rows: int) -> Piece:
        """What an answer has for one row. Raises InferenceFailed: it cannot be read."""
        found = Row(outputs, row, rows)
        return Piece(
            text=found.text(TEXT),
            tokens=_tokens(found),
            reason=found.word("finish_reason") or None,
            stop=found.word("stop_reason"),
            prompt_tokens=found.count("num_input_tokens"),
            output_tokens=found.count("num_output_tokens"),
        )

    def lacking(self, name: str) -> BadParameter:
        """Of a parameter that makes sense, but not to this backend."""
        return BadParameter(name, f"this model cannot do that; its backend is {self.title}")


class Vllm(Profile):
    """The vLLM backend. Source of names and shapes: its `src/utils/request.py`."""

    name, title, tells = "vllm", "vLLM", ("return_logprobs", "ids")
    names: Mapping[str, str] = {
        **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "seed", "logprobs", "stop_token_ids")},
        **{name: name for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")},
        **{name: name for name in ("include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens")},
        "ignore_eos_token": "ignore_eos", "min_length": "min_tokens", "bad_sequences": "bad_words", "stop_sequences": "stop",
        "truncate": "truncate_prompt_tokens", "adapter_id": "lora_name",
    }  # fmt: skip
    """LMI's name → vLLM's, in `SamplingParams`."""

    def fill(self, inputs: Inputs, wishes: Wishes) -> None:
        """As `Profile`."""
        sampling: dict[str, Any] = {"max_tokens": wishes.max_new_tokens}
        if wishes.is_greedy:
            sampling["temperature"] = 0
        for name, value in sorted(wishes.given.items()):
            if name in ("n", "best_of") and wishes.choices > 1:
                continue  # each sequence is a request
            if name not in self.names:
                raise self.lacking(name)
            sampling[self.names[name]] = value
        if wishes.has_details:
            sampling.setdefault("logprobs", 0)  # of the token itself, and of no other
        inputs.put("sampling_parameters", json.dumps(sampling))


class TrtLlm(Profile):
    """
    TensorRT-LLM's ensemble or BLS model.

    Source of names and shapes, as of the LLM API's: `all_models/inflight_batcher_llm` and `all_models/llmapi` of TensorRT-LLM's backend.
    """

    name, title, tells = "tensorrt_llm", "TensorRT-LLM", ("return_log_probs", "log_probs")
    counts_in_streams: ClassVar[bool] = False
    names: Mapping[str, Sequence[str]] = {
        **{name: (name,) for name in ("temperature", "top_k", "top_p", "min_p")},
        **{name: (name,) for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")},
        "length_penalty": ("length_penalty", "len_penalty"), "min_length": ("min_length", "min_tokens"), "seed": ("seed", "random_seed"),
        "bad_sequences": ("bad_words",), "stop_sequences": ("stop_words",), "max_new_tokens": ("max_tokens",),
    }  # fmt: skip
    """LMI's name → inputs, of which the model has one."""
    defaults: Mapping[bool, Mapping[str, float]] = {False: {"top_k": 5, "top_p": 0.85}, True: {"top_k": 0, "top_p": 1.0}}
    """Of sampling, where they are not given: without them it would be greedy. LMI's (its schema says so), and TGI's."""

    def fill(self, inputs: Inputs, wishes: Wishes) -> None:
        """As `Profile`."""
        own = {"top_k": 1} if wishes.is_greedy else self.defaults[wishes.is_tgi]
        for name, value in {**own, "max_new_tokens": wishes.max_new_tokens, **wishes.given}.items():
            found = inputs.first(*self.names.get(name, ()))
            if found is not None:
                inputs.put(found, value, parameter=name)
            elif name in wishes.given:
                raise self.lacking(name)


class LlmApi(TrtLlm):
    """TensorRT-LLM's LLM API. Each answer of a stream has the text from the beginning."""

    name, title, is_cumulative = "tensorrt_llm_api", "TensorRT-LLM's LLM API", True
    names: Mapping[str, Sequence[str]] = {
        **{name: (f"sampling_param_{name}",) for name in ("temperature", "top_k", "top_p", "seed")},
        **{name: (f"sampling_param_{name}",) for name in ("frequency_penalty", "presence_penalty")},
        "stop_sequences": ("sampling_param_stop",), "max_new_tokens": ("sampling_param_max_tokens",),
    }  # fmt: skip
    defaults: Mapping[bool, Mapping[str, float]] = {False: {}, True: {}}


def profile_of(info: ModelInfo) -> Profile:
    """
    The profile of a model.

    Raises:
        HttpError: 400: it takes no text, or gives none.
    """
    if not takes(info, PROMPT) or all(entry.name != TEXT for entry in info.metadata.outputs):
        raise HttpError(400, f"the model {info.metadata.name!r} is no language model: it has no {PROMPT} and {TEXT}")
    if takes(info, "sampling_parameters"):
        return Vllm()
    if takes(info, "sampling_param_max_tokens"):
        return LlmApi()
    return TrtLlm() if takes(info, "max_tokens") else Profile()


def takes(info: ModelInfo, name: str) -> bool:
    """Whether the model has this input."""
    return any(entry.name == name for entry in info.metadata.inputs)


def _tokens(found: Row) -> Sequence[Token] | None:
    """
    Of an answer; None: it does not tell.

    TensorRT-LLM tells log probabilities; all of them zero are a buffer that was never filled. vLLM has a list of
    `{id: {logprob, decoded_token, …}}`, `null`, or no such list; the sampled token comes first.
    """
    values = found.numbers("output_log_probs") if found.rows == 1 else []
    if any(values):
        return [Token(None, None, _finite(value)) for value in values]
    try:
        rows = json.loads(found.raw("logprobs") or b"null")
        return None if rows is None else [_token(*next(iter(row.items()))) for row in rows]
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
        return None


def _token(key: str, entry: Mapping[str, Any]) -> Token:
    number, text = int(key), entry.get("decoded_token")
    return Token(number if 0 <= number <= MOST else None, text if isinstance(text, str) else None, _finite(entry["logprob"]))


def _finite(value: Any) -> float | None:
    """A log probability."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and -MOST <= value <= MOST else None
