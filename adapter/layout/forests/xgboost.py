"""
XGBoost's three formats: JSON, UBJSON, and the binary one that XGBoost 3.1 cannot write or read any more.

The endings tell little: `.model` is UBJSON since XGBoost 2.1 and binary before, so the first bytes count. In JSON and
UBJSON the keys are sorted, so `learner_model_param` and `objective` follow the trees and stand in the last kilobytes. The
tail is read forwards from that key (a short JSON from its start): both objects around the key must end where the file ends.
What comes before the tail might hold the key again, hidden in gigabytes; so the whole file must have the key's letters once,
and no escape that could disguise them. Counting is linear, at the speed of the disk. A tokenizer over all brackets lost: a hostile file has
one in every byte. Pure.

Source: XGBoost `src/learner.cc`, `src/common/json.cc`, `doc/tutorials/saving_model.rst`; treelite
`src/model_loader/detail/xgboost_json/delegated_handler.cc` (classes and targets come from `learner_model_param` alone, the
last of equal keys counts) and `xgboost_legacy.cc`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from adapter.ends import Ends
from adapter.layout.forests import ubjson
from adapter.layout.forests.forest import XGBOOST_WORD, Forest, Unreliable, forest, number

_KEY: Final = XGBOOST_WORD.decode()
_PARAM: Final = struct.Struct("<fIiiiIII104x")
"""Base score, features, classes, two flags, version (two numbers, 0 before 1.0), targets (0 before 1.6)."""
_LENGTH: Final = struct.Struct("<Q")
_MOST_NAME = 64
_SPACE: Final = b" \t\r\n"


def read(ends: Ends) -> Forest:
    """
    The forest of a file of any of the three formats.

    Raises:
        Unreliable: none of them, or counts that are not there or contradict each other.
    """
    start = ends.head.lstrip(_SPACE)
    if start[:1] == b"{" and (start[1:2] in (b'"', b"}") or start[1:2].isspace()):
        return _read_json(ends)
    if len(start) == len(ends.head) and start[:1] == b"{" and start[1:2] in (b"L", b"i", b"U", b"I", b"l"):
        return _read_ubjson(ends)
    if start[:4] == b"bs64":
        raise Unreliable("it is XGBoost's old text form of a binary model, which Treelite cannot read; save it as JSON")
    return _read_binary(ends)


def _read_json(ends: Ends) -> Forest:
    if ends.others:
        raise Unreliable("it has letters written as \\u005…, \\u006… or \\u007…, which could hide a key")
    at = _key_of(ends, b'"' + XGBOOST_WORD + b'"')
    try:
        text = ends.tail.decode() if ends.size_bytes == len(ends.tail) else '{"learner":{' + ends.tail[at:].decode()
        tree = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise Unreliable("its end is not what follows the trees in XGBoost's JSON") from None
    return _from_learner("xgboost_json", _mapping(tree).get("learner"))


def _read_ubjson(ends: Ends) -> Forest:
    at = _key_of(ends, XGBOOST_WORD)
    if not ubjson.is_key(ends.tail, at, len(XGBOOST_WORD)):
        raise Unreliable(f"it has the word {_KEY} where no key is")
    return _from_learner("xgboost_ubj", ubjson.rest(ends.tail, at + len(XGBOOST_WORD), _KEY))


def _key_of(ends: Ends, key: bytes) -> int:
    """Where the only such key stands in the tail."""
    if ends.mentions > 1:
        raise Unreliable(f"it has the word {_KEY} {ends.mentions} times, perhaps as a feature's name or in an attribute")
    if not ends.mentions:
        raise Unreliable(f"it has no {_KEY}")
    at = ends.tail.rfind(key)
    if at < 0:
        raise Unreliable(f"it has no {_KEY} at its end, where XGBoost writes it")
    return at


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _from_learner(model_type: str, learner: Any) -> Forest:
    parameters, objective = (_mapping(_mapping(learner).get(key)) for key in (_KEY, "objective"))
    classes = number(_text(parameters.get("num_class")), "num_class")
    targets = number(_text(parameters.get("num_target", "1")), "num_target")
    features = number(_text(parameters.get("num_feature")), "num_feature")
    name = _text(objective.get("name"))
    if name is None:
        raise Unreliable("it has no objective")
    softmax = objective.get("softmax_multiclass_param")
    if softmax is not None and number(_text(_mapping(softmax).get("num_class")), "num_class of the objective") != classes:
        raise Unreliable(f"it says num_class {classes}, and its objective another")
    return _checked(model_type, name, features=features, classes=classes, targets=targets)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _read_binary(ends: Ends) -> Forest:
    offset = 4 if ends.head[:4] == b"binf" else 0
    try:
        _score, features, classes, _, _, major, _, targets = _PARAM.unpack_from(ends.head, offset)
        objective, offset = _name(ends.head, offset + _PARAM.size)
        booster, _ = _name(ends.head, offset)
    except (struct.error, UnicodeDecodeError):
        booster = ""
    if booster not in ("gbtree", "dart") or major > 2:
        raise Unreliable("it begins neither as XGBoost's JSON nor as its UBJSON, and is no binary model with trees")
    return _checked("xgboost", objective, features=features, classes=classes, targets=targets or 1)


def _name(head: bytes, offset: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(head, offset)
    end = offset + _LENGTH.size + length
    if length > _MOST_NAME or end > len(head):
        raise struct.error
    return head[offset + _LENGTH.size : end].decode("ascii"), end


def _checked(model_type: str, objective: str, *, features: int, classes: int, targets: int) -> Forest:
    """What an objective says of the number of classes; one of the user's own says nothing, and may be saved under any name."""
    if objective.startswith("multi:") and classes < 1:
        raise Unreliable(f"its objective is one of several classes, and it says num_class {classes}")
    if classes > 1 and targets > 1:
        raise Unreliable(f"it says {classes} classes and {targets} targets")
    is_binary = objective.startswith("binary:") and classes <= 1 and targets == 1
    return forest(model_type, features=features, classes=max(classes, 1), targets=targets, is_binary=is_binary)
