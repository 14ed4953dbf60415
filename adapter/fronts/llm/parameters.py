"""
Parameters of a generation, as LMI and TGI name them: which there are, and which values make sense. Pure.

Null is absent. A name that neither schema has is ignored, as both servers do, and noted. Sources: "LMI handlers Inference API Schema",
GenerationParameters; TGI `router/src/validation.rs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec

from adapter.fronts.failures import HttpError

INT32, INT64 = 2**31 - 1, 2**63 - 1
_LARGEST = 3.4e38
"""Of FP32, in short: the type that backends have for parameters."""
MOST_ENTRIES = 64
"""Of a list: each token is compared with all stop sequences."""
MOST_SHOWN = 64
MOST_PROMPTS = 64
"""Of one request: each may be a call of its own."""
_DEFAULT_TOKENS = {False: 30, True: 20}
"""`max_new_tokens`, of LMI and of TGI."""


class BadParameter(HttpError):
    """A parameter that has no such value, or that the model's backend does not have. The text names it."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(400, f"parameters.{name}: {words}")
        self.name = name
        self.words = words


@dataclass(frozen=True)
class Rule:
    """What one parameter can be."""

    kind: Any
    """Its type, as msgspec reads it."""
    neutral: Sequence[Any] = ()
    """Values that ask the backend for nothing."""
    tgi: Any = None
    """Where TGI takes less."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a caller wants of a language model."""

    max_new_tokens: int
    is_greedy: bool
    has_details: bool = False
    has_prompt_in_text: bool = False
    """`return_full_text`."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """All others that were given and ask for something, by LMI's names; what is of sampling, only where tokens are drawn."""
    ignored: Sequence[str] = ()
    """Names that neither schema has, and parameters of sampling where nothing is sampled."""
    is_tgi: bool = False
    prompts: Sequence[str] = ()
    """One for each choice."""
    messages: bytes = b""
    """Of a chat, as JSON: the prompt is made of them."""
    choices: int = 1
    """For each prompt. LMI answers the likeliest; there `n` and `best_of` say it."""
    is_stream: bool = False
    """Tokens as they come."""
    has_usage: bool = False
    """A stream has it in its last piece."""
    is_dynamic: bool = False
    """The text alone, and nothing else."""


def wishes_of(value: Any, *, is_tgi: bool) -> Wishes:
    """
    The `parameters` of a request.

    Raises:
        HttpError: 400: they are no object.
        BadParameter: one of them has a value that makes no sense.
    """
    if not isinstance(value, dict | None):
        raise HttpError(400, "parameters must be an object")
    entries: dict[str, Any] = {name: entry for name, entry in (value or {}).items() if entry is not None}
    names: dict[str, str] = {}
    for theirs, entry in entries.items():
        other = names.setdefault(ALIASES.get(theirs, theirs), theirs)
        if other != theirs and entries[other] != entry:
            raise BadParameter(theirs, f"is another name of {other}, which has another value")
    given: dict[str, Any] = {name: entries[theirs] for name, theirs in names.items()}
    if isinstance(given.get("stop_sequences"), str):
        given["stop_sequences"] = [given["stop_sequences"]]
    for name, rule in RULES.items():
        if name in given:
            checked(names[name], (is_tgi and rule.tgi) or rule.kind, given[name])
    most = given.pop("max_new_tokens", _DEFAULT_TOKENS[is_tgi])
    if given.get("min_length", 0) > most:
        raise BadParameter(names["min_length"], f"{given['min_length']} is more than max_new_tokens ({most})")
    known: dict[str, Any] = {name: entry for name, entry in given.items() if name in RULES and entry not in RULES[name].neutral}
    # `do_sample` says it, as in LMI 0.31; with TGI any parameter of sampling does, too
    is_sampled = given.get("do_sample") or (is_tgi and SAMPLING & known.keys())
    # at a temperature of 0, or of no probability, nothing is drawn: backends refuse such values, and the best token is what is meant
    is_greedy = not is_sampled or 0 in (given.get("temperature"), given.get("top_p"))
    unsampled = SAMPLED & known.keys() if is_greedy else set()
    ignored = {*(given.keys() - RULES.keys()), *(names[name] for name in unsampled if given[name] != 0)}
    return Wishes(
        max_new_tokens=most,
        is_greedy=is_greedy,
        has_details=given.get("details", False),
        has_prompt_in_text=given.get("return_full_text", False),
        given={name: entry for name, entry in known.items() if name not in unsampled},
        ignored=sorted(name[:MOST_SHOWN] for name in ignored)[:MOST_SHOWN],
        is_tgi=is_tgi,
    )


def with_sequences(wishes: Wishes) -> Wishes:
    """The same, where `n` or `best_of` may ask for several sequences. Raises BadParameter: such a request cannot have them."""
    found: dict[str, Any] = {name: wishes.given[name] for name in ("n", "best_of") if name in wishes.given}
    if not found:
        return wishes
    name = max(found, key=lambda name: int(found[name]))
    if wishes.is_greedy or "seed" in wishes.given:
        raise BadParameter(name, "needs do_sample and no seed: else all sequences would be equal")
    if wishes.is_stream or found[name] > MOST_PROMPTS:
        raise BadParameter(name, f"is at most {MOST_PROMPTS}, and 1 in a stream")
    return replace(wishes, prompts=[*wishes.prompts] * found[name], choices=found[name], has_details=True)


def checked(name: str, kind: Any, value: Any) -> Any:
    """A value as this type. Raises BadParameter: it is none."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise BadParameter(name, str(error)) from None


def integer(low: int, high: int = INT32) -> Any:
    """The type."""
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


def _number(low: float, high: float = _LARGEST) -> Any:
    return Annotated[float, msgspec.Meta(ge=low, le=high)]


def _above_zero(high: float = _LARGEST) -> Any:
    return Annotated[float, msgspec.Meta(gt=0, le=high)]


TEXT = Annotated[str, msgspec.Meta(min_length=1)]
_TEXTS = Annotated[list[TEXT], msgspec.Meta(max_length=MOST_ENTRIES)]
_TOKEN_IDS = Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=INT32)]], msgspec.Meta(max_length=MOST_ENTRIES)]
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("do_sample", "details", "return_full_text"), Rule(bool, (False, True))),
    **dict.fromkeys(("early_stopping", "ignore_eos_token", "include_stop_str_in_output"), Rule(bool, (False,))),
    **dict.fromkeys(("watermark", "decoder_input_details"), Rule(bool, (False,))),
    **dict.fromkeys(("skip_special_tokens", "spaces_between_special_tokens"), Rule(bool, (True,))),
    **dict.fromkeys(("max_new_tokens", "truncate"), Rule(integer(1))),
    **dict.fromkeys(("n", "best_of", "num_beams"), Rule(integer(1), (1,))),
    **dict.fromkeys(("min_length", "top_n_tokens"), Rule(integer(0), (0,))),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), Rule(_number(-2, 2), (0,))),
    "seed": Rule(integer(0, INT64)),
    "stop_sequences": Rule(_TEXTS, ([],)),
    "temperature": Rule(_number(0), tgi=_above_zero()),
    "top_k": Rule(integer(-1), (0, -1), tgi=integer(1)),
    "top_p": Rule(_number(0, 1), (1,), tgi=_above_zero(1)),
    "typical_p": Rule(_above_zero(1), (1,)),
    "min_p": Rule(_number(0, 1), (0,)),
    "repetition_penalty": Rule(_above_zero(), (1,)),
    "length_penalty": Rule(_number(-INT32, INT32), (1,)),
    "bad_sequences": Rule(_TEXTS, ([],)),
    "stop_token_ids": Rule(_TOKEN_IDS, ([],)),
    "logprobs": Rule(integer(0), (0, 1)),
    "prompt_logprobs": Rule(integer(0)),
    "grammar": Rule(Any),
    "adapter_id": Rule(str),
}
ALIASES = {"stop": "stop_sequences", "ignore_eos": "ignore_eos_token", "min_new_tokens": "min_length"}
SAMPLING = frozenset({"temperature", "top_k", "top_p", "typical_p", "min_p"})
"""Any of these asks for sampling."""
SAMPLED = SAMPLING | {"seed"}
