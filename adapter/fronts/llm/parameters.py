"""
Parameters of a generation, as LMI and TGI name them: which there are, and which values make sense. Pure.

Null is absent. A name that neither schema has is ignored, as both servers do, and noted. Sources: "LMI handlers Inference API Schema",
GenerationParameters; TGI `router/src/validation.rs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapter.fronts.answers import HttpError
from adapter.model import is_utf8

BAD_PAYLOAD = 424
"""LMI's status for it; TGI's is another."""
Value = bool | int | float | str | Sequence[str] | Sequence[int]
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


class BadPayload(HttpError):
    """A body that is no request: one line for its caller."""

    def __init__(self, text: str) -> None:
        super().__init__(BAD_PAYLOAD, text)


class BadParameter(BadPayload):
    """A parameter that has no such value, or that the model's backend does not have. The text names it."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(f"parameters.{name}: {words}")
        self.name = name
        self.words = words

    def called(self, names: Mapping[str, str]) -> BadParameter:
        """The same with its caller's name, where `names` has one for LMI's."""
        return BadParameter(names.get(self.name, self.name), self.words)


@dataclass(frozen=True)
class Kind:
    """Which values a parameter can have, in words, and whether a value is such a one."""

    words: str
    has: Callable[[Any], bool]


@dataclass(frozen=True)
class Rule:
    """What one parameter can be."""

    kind: Kind
    neutral: Sequence[Any] = ()
    """Values that ask for nothing."""
    tgi: Kind | None = None
    """Where TGI takes less."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a caller wants of a generation."""

    max_new_tokens: int
    is_greedy: bool
    seed: int | None = None
    """Of a generation that is not greedy."""
    stops: Sequence[str] = ()
    has_details: bool = False
    has_prompt_in_text: bool = False
    """`return_full_text`."""
    given: Mapping[str, Value] = field(default_factory=dict)
    """All others that were given and ask for something, by LMI's names."""
    names: Mapping[str, str] = field(default_factory=dict)
    """LMI's name → the caller's, where it is another one."""
    ignored: Sequence[str] = ()
    """Names that neither schema has, and parameters of sampling where nothing is sampled."""
    is_tgi: bool = False


def wishes_of(value: Any, *, is_tgi: bool) -> Wishes:
    """
    The `parameters` of a request.

    Raises:
        BadPayload: they are no object.
        BadParameter: one of them has a value that makes no sense.
    """
    if not isinstance(value, dict | None):
        raise BadPayload("parameters must be an object")
    entries: dict[str, Any] = {name: entry for name, entry in (value or {}).items() if entry is not None}
    names: dict[str, str] = {}
    for theirs, entry in entries.items():
        other = names.setdefault(ALIASES.get(theirs, theirs), theirs)
        if other != theirs and entries[other] != entry:
            raise BadParameter(theirs, f"is another name of {other}, which has another value")
    given: dict[str, Any] = {name: entries[theirs] for name, theirs in names.items()}
    if isinstance(given.get("stop_sequences"), str):
        given["stop_sequences"] = [given["stop_sequences"]]
    for name in RULES:
        if name in given:
            _check(names[name], RULES[name], given[name], is_tgi=is_tgi)
    most = given.get("max_new_tokens", _DEFAULT_TOKENS[is_tgi])
    if given.get("min_length", 0) > most:
        raise BadParameter(names["min_length"], f"{given['min_length']} is more than max_new_tokens ({most})")
    known: dict[str, Any] = {name: entry for name, entry in given.items() if name in RULES and entry not in RULES[name].neutral}
    is_greedy = not _is_sampled(given, known, is_tgi=is_tgi)
    unsampled = {names[name] for name in SAMPLING & known.keys() if is_greedy and given[name] != 0}
    return Wishes(
        max_new_tokens=most,
        is_greedy=is_greedy,
        seed=None if is_greedy else given.get("seed"),
        stops=tuple(given.get("stop_sequences", ())),
        has_details=given.get("details", False),
        has_prompt_in_text=given.get("return_full_text", False),
        given={name: entry for name, entry in known.items() if name not in _OWN and not (is_greedy and name in SAMPLING)},
        names={name: theirs for name, theirs in names.items() if name != theirs},
        ignored=sorted(_short(name) for name in {*(given.keys() - RULES.keys()), *unsampled})[:MOST_SHOWN],
        is_tgi=is_tgi,
    )


def _is_sampled(given: Mapping[str, Any], known: Mapping[str, Any], *, is_tgi: bool) -> bool:
    """
    Whether tokens are drawn: `do_sample` says it, or, where it does not, any parameter of sampling.

    TGI's clients send `do_sample: false` beside a temperature, and TGI then samples. At a temperature of 0, or of no probability,
    nothing is drawn: backends refuse such values, and the best token is what is meant.
    """
    if given.get("temperature") == 0 or given.get("top_p") == 0:
        return False
    if "do_sample" in given and (given["do_sample"] or not is_tgi):
        return bool(given["do_sample"])
    return any(name in known for name in SAMPLING)


def _check(name: str, rule: Rule, value: Any, *, is_tgi: bool) -> None:
    for kind in (rule.kind, rule.tgi if is_tgi else None):
        if kind is not None and not kind.has(value):
            raise BadParameter(name, f"{_shown(value)} is not {kind.words}")


def _shown(value: Any) -> str:
    """A stranger's value in a text of ours, as JSON: `"3"` is no number."""
    return _short(json.dumps(value, default=str, ensure_ascii=False))


def _short(text: str) -> str:
    return text.encode("utf-8", "replace").decode()[:MOST_SHOWN]


def is_text(value: Any) -> bool:
    """Whether it is a text that a model can be given: JSON also has halves of a pair of surrogates."""
    return isinstance(value, str) and is_utf8(value)


def _integer(low: int, high: int = INT32) -> Kind:
    words = f"an integer from {low} to {high}"
    return Kind(words, lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high)


def _number(low: float, high: float = _LARGEST) -> Kind:
    words = f"a number from {low:g} to {high:g}" if high < _LARGEST else f"a number of at least {low:g}"
    return Kind(words, lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high)


def _above(low: float, high: float = _LARGEST) -> Kind:
    words = f"a number above {low:g}" + (f", up to {high:g}" if high < _LARGEST else "")
    number = _number(low, high)
    return Kind(words, lambda value: number.has(value) and value != low)


def _list(words: str, is_entry: Callable[[Any], bool]) -> Kind:
    return Kind(
        f"a list of at most {MOST_ENTRIES} {words}",
        lambda value: isinstance(value, list) and len(value) <= MOST_ENTRIES and all(map(is_entry, value)),
    )


_FLAG, _TEXT = Kind("true or false", lambda value: isinstance(value, bool)), Kind("a text", is_text)
_TEXTS = _list("texts that are not empty", lambda entry: is_text(entry) and entry != "")
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("do_sample", "details", "return_full_text"), Rule(_FLAG)),
    **dict.fromkeys(("early_stopping", "ignore_eos_token", "include_stop_str_in_output"), Rule(_FLAG, (False,))),
    **dict.fromkeys(("watermark", "decoder_input_details"), Rule(_FLAG, (False,))),
    **dict.fromkeys(("skip_special_tokens", "spaces_between_special_tokens"), Rule(_FLAG, (True,))),
    **dict.fromkeys(("max_new_tokens", "truncate"), Rule(_integer(1))),
    **dict.fromkeys(("n", "best_of", "num_beams"), Rule(_integer(1), (1,))),
    **dict.fromkeys(("min_length", "top_n_tokens"), Rule(_integer(0), (0,))),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), Rule(_number(-2, 2), (0,))),
    "seed": Rule(_integer(0, INT64)),
    "stop_sequences": Rule(_TEXTS),
    "temperature": Rule(_number(0), tgi=_above(0)),
    "top_k": Rule(_integer(-1), (0, -1), tgi=_integer(1)),
    "top_p": Rule(_number(0, 1), (1,), tgi=_above(0, 1)),
    "typical_p": Rule(_above(0, 1), (1,)),
    "min_p": Rule(_number(0, 1), (0,)),
    "repetition_penalty": Rule(_above(0), (1,)),
    "length_penalty": Rule(_number(-INT32, INT32), (1,)),
    "bad_sequences": Rule(_TEXTS, ([],)),
    "stop_token_ids": Rule(_list("token ids", _integer(0).has), ([],)),
    "logprobs": Rule(_integer(0), (0, 1)),
    "prompt_logprobs": Rule(_integer(0)),
    "grammar": Rule(Kind("anything", lambda _: True)),
    "adapter_id": Rule(_TEXT),
}
ALIASES = {"stop": "stop_sequences", "ignore_eos": "ignore_eos_token", "min_new_tokens": "min_length"}
SAMPLING = frozenset({"temperature", "top_k", "top_p", "typical_p", "min_p"})
"""Any of these asks for sampling."""
_OWN = frozenset({"max_new_tokens", "do_sample", "details", "return_full_text", "seed", "stop_sequences"})
"""In fields of their own."""
