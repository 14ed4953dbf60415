"""The vLLM backend. Source of names and shapes: its `src/utils/request.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from adapter.fronts.llm.backends.filling import lacking, put_flags, takes
from adapter.fronts.llm.backends.profile import PROMPT, TEXT, Piece, Question, Request, Token
from adapter.fronts.llm.backends.reading import count, finite, first, text_of_row, token_id, word
from adapter.fronts.llm.parameters import INT64, BadParameter, Wishes
from adapter.fronts.llm.tensors import Inputs, numbers_of, texts_of
from adapter.inference import ModelInfo, Tensor


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
        for name in sorted(wishes.given.keys() - self.names.keys()):
            raise lacking(name, "vLLM")
        inputs = Inputs(info, len(prompts))
        sampling: dict[str, Any] = {self.names[name]: value for name, value in wishes.given.items()}
        sampling["max_tokens"] = wishes.max_new_tokens
        if wishes.is_greedy:
            sampling["temperature"] = 0
        if wishes.seed is not None:
            if wishes.seed > INT64:
                raise BadParameter("seed", f"vLLM takes at most {INT64}")
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
        put_flags(inputs, flags)
        return inputs.tensors, {}

    def piece(self, outputs: Mapping[str, Tensor], row: int, rows: int) -> Piece:
        """As `Profile`."""
        return Piece(
            text=text_of_row(outputs.get(TEXT), row, rows),
            tokens=_tokens(first(texts_of(outputs.get("logprobs")), row, rows)),
            reason=word(first(texts_of(outputs.get("finish_reason")), row, rows)),
            prompt_tokens=count(first(numbers_of(outputs.get("num_input_tokens")), row, rows)),
            output_tokens=count(first(numbers_of(outputs.get("num_output_tokens")), row, rows)),
        )

    def level(self, info: ModelInfo) -> str:
        """As `Profile`."""
        return "ids" if takes(info, "return_logprobs") else "text"

    def repeats_prompt(self, info: ModelInfo) -> bool:
        """As `Profile`."""
        return not takes(info, "exclude_input_in_output")


def _tokens(text: bytes | None) -> Sequence[Token] | None:
    """Of vLLM's list of `{id: {logprob, decoded_token, …}}`; the sampled token comes first. None: `null`, or no such list."""
    try:
        rows = json.loads(text or b"null")
        found = [next(iter(row.items())) for row in rows or ()]
        return None if rows is None else [Token(token_id(key), _text(entry), finite(entry["logprob"])) for key, entry in found]
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
        return None


def _text(entry: Mapping[str, Any]) -> str | None:
    text = entry.get("decoded_token")
    return text if isinstance(text, str) else None
