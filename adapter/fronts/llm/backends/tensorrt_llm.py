"""
TensorRT-LLM's backends: the ensemble or BLS model, and the LLM API.

Source of names and shapes: `all_models/inflight_batcher_llm` and `all_models/llmapi` of TensorRT-LLM's backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adapter.fronts.llm.backends.filling import all_given, put, put_flags, takes
from adapter.fronts.llm.backends.profile import PROMPT, TEXT, Piece, Question, Request, Token
from adapter.fronts.llm.backends.reading import count, finite, first, text_of_row, word
from adapter.fronts.llm.parameters import Wishes
from adapter.fronts.llm.tensors import Inputs, numbers_of, texts_of
from adapter.inference import ModelInfo, Tensor


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
        given = all_given(wishes)
        for name, value in given.items():
            put(inputs, name, self.names.get(name, ()), value, "TensorRT-LLM")
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
        put_flags(inputs, flags)
        return inputs.tensors, {}

    def piece(self, outputs: Mapping[str, Tensor], row: int, rows: int) -> Piece:
        """As `Profile`. Log probabilities that are all zero are a buffer that nobody has filled."""
        values = numbers_of(outputs.get("output_log_probs")) if rows == 1 else []
        tokens = [Token(None, None, finite(value)) for value in values] if any(values) else None
        return Piece(
            text=text_of_row(outputs.get(TEXT), row, rows),
            tokens=tokens,
            prompt_tokens=count(first(numbers_of(outputs.get("num_input_tokens")), row, rows)),
            output_tokens=count(first(numbers_of(outputs.get("num_output_tokens")), row, rows)),
        )

    def level(self, info: ModelInfo) -> str:
        """As `Profile`."""
        return "log_probs" if takes(info, "return_log_probs") else "text"

    def repeats_prompt(self, info: ModelInfo) -> bool:
        """As `Profile`."""
        return not takes(info, "exclude_input_in_output")


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
        for name, value in all_given(wishes).items():
            put(inputs, name, self.names.get(name, ()), value, "TensorRT-LLM's LLM API")
        if wishes.is_greedy and inputs.has("sampling_param_top_k"):
            inputs.put("sampling_param_top_k", [1])
        flags = {
            "streaming": question.is_stream,
            "sampling_param_exclude_input_from_output": True,
            "return_finish_reason": question.has_reason,
            "return_stop_reason": question.has_reason,
        }
        put_flags(inputs, flags)
        return inputs.tensors, {}

    def piece(self, outputs: Mapping[str, Tensor], row: int, rows: int) -> Piece:
        """As `Profile`."""
        stops = texts_of(outputs.get("stop_reason"))
        return Piece(
            text=text_of_row(outputs.get(TEXT), row, rows),
            reason=word(first(texts_of(outputs.get("finish_reason")), row, rows)),
            stop=(word(first(stops, row, rows)) or "") if stops else None,
        )

    def level(self, info: ModelInfo) -> str:
        """As `Profile`."""
        return "text"

    def repeats_prompt(self, info: ModelInfo) -> bool:
        """As `Profile`."""
        return not takes(info, "sampling_param_exclude_input_from_output")
