"""Any other model from text to text. Source: Triton's generate extension, parameters of a request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from adapter.fronts.llm.backends.filling import all_given, lacking, put_flags
from adapter.fronts.llm.backends.profile import PROMPT, TEXT, Piece, Question, Request
from adapter.fronts.llm.backends.reading import text_of_row
from adapter.fronts.llm.parameters import INT64, BadParameter, Wishes
from adapter.fronts.llm.tensors import Inputs
from adapter.inference import ModelInfo, Parameter, Tensor

_NEVER_TOLD = frozenset({"n", "decoder_input_details", "logprobs", "prompt_logprobs", "top_n_tokens"})
"""What they ask for is no part of such a model's answer: it is one text."""
_INPUTS_ALONE = frozenset({"best_of", "num_beams", "grammar"})
"""A model that can do these says so by an input: a parameter of the request could be ignored, and nobody would see it."""


class PlainText:
    """A parameter is an input of that name, where there is one, else most are a parameter of the request."""

    name, is_cumulative = "text", False

    def request(self, info: ModelInfo, prompts: Sequence[str], wishes: Wishes, question: Question) -> Request:
        """As `Profile`."""
        inputs = Inputs(info, len(prompts))
        inputs.put(PROMPT, prompts, rows=True)
        parameters: dict[str, Parameter] = {}
        for name, value in {"max_new_tokens": wishes.max_new_tokens, **all_given(wishes)}.items():
            entry = inputs.first(name, "max_tokens") if name == "max_new_tokens" else inputs.first(name)
            if value and (name in _NEVER_TOLD or (name in _INPUTS_ALONE and entry is None)):
                raise lacking(name, self.name)
            if entry is not None:
                inputs.put(entry, value if isinstance(value, (list, tuple)) else [value], parameter=name)
            elif name == "seed" and value > INT64:
                raise BadParameter(name, f"this model takes at most {INT64}")
            else:
                parameters[name] = value if isinstance(value, (bool, int, float, str)) else json.dumps(value)
        put_flags(inputs, {"stream": question.is_stream})
        return inputs.tensors, parameters

    def piece(self, outputs: Mapping[str, Tensor], row: int, rows: int) -> Piece:
        """As `Profile`."""
        return Piece(text=text_of_row(outputs.get(TEXT), row, rows))

    def level(self, info: ModelInfo) -> str:
        """As `Profile`."""
        return "text"

    def repeats_prompt(self, info: ModelInfo) -> bool:
        """As `Profile`."""
        return True
