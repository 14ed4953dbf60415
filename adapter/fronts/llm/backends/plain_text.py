"""Any other model from text to text. Source: Triton's generate extension, parameters of a request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from adapter.fronts.llm.backends.filling import all_given, put_flags
from adapter.fronts.llm.backends.profile import PROMPT, TEXT, Piece, Question, Request
from adapter.fronts.llm.backends.reading import text_of_row
from adapter.fronts.llm.parameters import Wishes
from adapter.fronts.llm.tensors import Inputs
from adapter.inference import ModelInfo, Parameter, Tensor


class PlainText:
    """A parameter is an input of that name, where there is one, else a parameter of the request."""

    name, is_cumulative = "text", False

    def request(self, info: ModelInfo, prompts: Sequence[str], wishes: Wishes, question: Question) -> Request:
        """As `Profile`."""
        inputs = Inputs(info, len(prompts))
        inputs.put(PROMPT, prompts, rows=True)
        parameters: dict[str, Parameter] = {}
        for name, value in {"max_new_tokens": wishes.max_new_tokens, **all_given(wishes)}.items():
            entry = inputs.first(name, "max_tokens") if name == "max_new_tokens" else inputs.first(name)
            if entry is not None:
                inputs.put(entry, value if isinstance(value, (list, tuple)) else [value], parameter=name)
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
