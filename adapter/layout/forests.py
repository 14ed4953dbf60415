"""
What a file with a forest of trees says of itself: its format, its outputs, its features. Reads both ends of the file. Pure.

XGBoost has three formats: JSON, UBJSON, and the binary one that XGBoost 3.1 cannot write or read any more. The endings tell
little: `.model` is UBJSON since XGBoost 2.1 and binary before, so the first bytes count. In JSON and UBJSON the keys are sorted,
so `learner_model_param` and `objective` follow the trees and stand in the last kilobytes. The tail is read forwards from that
key (a short JSON from its start; UBJSON cannot be read backwards): both objects around the key must end where the file ends.
Nothing before the tail is looked at: a forged file can end Triton in other ways too.

LightGBM has a text format: `key=value` lines before the first tree. Treelite's checkpoints are binary, with the counts at fixed
places of the head. Two layouts are known: that of 3.9, and that of 4. Both put whole numbers of the machine's (little-endian)
order one after the other without padding, and an array's length as 8 bytes before its elements.

Source: the UBJSON specification, draft 12; XGBoost `src/learner.cc`, `src/common/json.cc` (`UBJWriter`: lengths as int64, arrays of one
type in the packed form), `doc/tutorials/saving_model.rst`; LightGBM `src/boosting/gbdt_model_text.cpp`;
treelite `src/model_loader/detail/xgboost_json/delegated_handler.cc` (classes and targets come from `learner_model_param` alone, the
last of equal keys counts), `xgboost_legacy.cc`, `lightgbm.cc` (the last of equal keys before the first line `Tree=…` counts; several
classes need the objective multiclass or multiclassova; early releases take the classes from `num_tree_per_iteration`), `src/serializer.cc`
and `docs/serialization/v3.rst`, `v4.rst`.
"""

from __future__ import annotations

import json
import re
import struct
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from adapter.volume.trees import Ends

MOST_OUTPUTS = 65_536
"""Numbers per row. Far above any real forest; Triton would reserve memory for more."""
MOST_FEATURES = 2**31 - 1
FORMATS: Final = {
    "xgboost_json": "xgboost.json",
    "xgboost_ubj": "xgboost.ubj",
    "xgboost": "xgboost.model",
    "lightgbm": "model.txt",
    "treelite_checkpoint": "checkpoint.tl",
}
"""The backend's word for a format → the name under which it finds a file of it, in the order of how usual they are."""

_KEY: Final = "learner_model_param"
_UBJSON_KEYS: Final = tuple(length + _KEY.encode() for length in (b"L" + len(_KEY).to_bytes(8, "big"), b"i\x13", b"U\x13"))
"""With the length before it, as XGBoost writes it or in one byte."""
_NUMBERS: Final = {kind.encode(): struct.Struct(f">{form}") for kind, form in zip("iUIlLdD", "bBhiqfd", strict=True)}
_WORDS: Final = {b"Z": None, b"T": True, b"F": False}
_PARAM: Final = struct.Struct("<fIiiiIII104x")
"""Of XGBoost's binary format: base score, features, classes, two flags, version (two numbers, 0 before 1.0), targets (0 before 1.6)."""
_LENGTH: Final = struct.Struct("<Q")
_MOST_NAME = 64
_SEVERAL_CLASSES = ("multiclass", "softmax", "multiclassova", "multiclass_ova", "ova", "ovr")
_HEADER: Final = struct.Struct("<iiiBBQi")
"""Of checkpoints: version, type of thresholds and of leaves, number of trees, number of features."""
_V3: Final = struct.Struct("<BBB?xxII")
"""Task, whether trees are averaged, then the task's parameters: type of outputs, grove per class, classes, size of a leaf."""
_V4: Final = struct.Struct("<BBi")
"""Task, whether trees are averaged, number of targets."""
_V3_ONE, _V3_GROVES, _V3_VECTORS = range(3)
_BINARY, _REGRESSION, _CLASSES, _RANKING, _ISOLATION = range(5)


class Unreliable(Exception):
    """The file does not say it, or contradicts itself; one clause says what."""


@dataclass(frozen=True)
class Forest:
    """What the FIL backend will read from one file."""

    model_type: str
    """The backend's word for the format."""
    features: int
    """Numbers that it reads for each row, whatever the request has."""
    classes: int
    """1 for a regression, a ranking and two classes."""
    targets: int = 1
    is_binary: bool = False
    """Its one number is the probability of the second of two classes."""

    def __post_init__(self) -> None:
        """Raises Unreliable: the numbers are not plausible."""
        for count, what, most in ((self.features, "features", MOST_FEATURES), (self.outputs, "outputs", MOST_OUTPUTS)):
            if not 1 <= count <= most:
                raise Unreliable(f"it says {count} {what}")

    @property
    def outputs(self) -> int:
        """Numbers that the trees give for each row."""
        return self.classes * self.targets

    @property
    def shown(self) -> str:
        """For error texts: `3 classes`."""
        if self.targets > 1:
            return f"{self.targets} targets" + (f" of {self.classes} classes" if self.classes > 1 else "")
        return f"{self.classes} classes" if self.classes > 1 else "one output"


def read(model_type: str, ends: Ends) -> Forest:
    """
    What a file of this format says of itself; of XGBoost's three, the content tells which it is.

    Raises:
        Unreliable: it does not say it.
    """
    if model_type == "lightgbm":
        return _lightgbm(ends)
    if model_type == "treelite_checkpoint":
        return _treelite(ends)
    if re.match(rb'\s*{["}\s]', ends.head):
        return _from_learner("xgboost_json", ends)
    return _from_learner("xgboost_ubj", ends) if ends.head[:2] in (b"{L", b"{i", b"{U", b"{I", b"{l") else _xgboost_binary(ends)


def _from_learner(model_type: str, ends: Ends) -> Forest:
    """What XGBoost writes behind the trees, in either form: an absent number of targets is 1."""
    try:
        said = _json(ends) if model_type == "xgboost_json" else _ubjson(ends)
        counts, name = {"num_target": "1"} | said[_KEY], str(said["objective"]["name"])
        classes, targets, features = (_number(counts[key], key) for key in ("num_class", "num_target", "num_feature"))
    except (LookupError, OverflowError, TypeError, ValueError, RecursionError, struct.error):
        raise Unreliable(f"it has no {_KEY} and objective at its end, as XGBoost writes them") from None
    return _xgboost(model_type, name, features=features, classes=classes, targets=targets)


def _json(ends: Ends) -> Any:
    text = ends.tail
    if ends.size_bytes > len(text):
        text = b'{"learner":{' + text[text.rindex(f'"{_KEY}"'.encode()) :]
    return json.loads(text.decode())["learner"]


def _ubjson(ends: Ends) -> Any:
    reader = _Ubjson(ends.tail[max(map(ends.tail.rfind, _UBJSON_KEYS)) :])
    learner = reader.members()
    reader.members()
    return None if reader.read(1) else learner


class _Ubjson(BytesIO):
    """
    Reads forwards; items of arrays are left out. Never makes more than it was given. A text that is cut is no error: what follows is.

    Raises LookupError, OverflowError, TypeError, ValueError, RecursionError or struct.error: the bytes are something else.
    """

    def members(self) -> dict[str, Any]:
        """The rest of an object, up to its brace."""
        found: dict[str, Any] = {}
        while (mark := self.read(1)) != b"}":
            name = self.read(self._value(mark)).decode()
            found[name] = self._value(self.read(1))
        return found

    def _value(self, mark: bytes) -> Any:
        if mark == b"{":
            return self.members()
        if mark == b"S":
            return self.read(self._value(self.read(1))).decode()
        if mark == b"[":  # of one type of numbers (`$`), or of any (`#`), behind its length: XGBoost writes no others
            is_packed = self.read(1) == b"$"
            size = _NUMBERS[self.read(2)[:1]].size if is_packed else 0
            count = self._value(self.read(1))
            self.read(size * count)
            for _ in range(0 if is_packed else count):  # each takes a byte at least, so the end of the file is the latest end
                self._value(self.read(1))
            return None
        return _WORDS[mark] if mark in _WORDS else _NUMBERS[mark].unpack(self.read(_NUMBERS[mark].size))[0]


def _xgboost_binary(ends: Ends) -> Forest:
    head = BytesIO(ends.head.removeprefix(b"binf"))
    try:
        _score, features, classes, _, _, major, _, targets = _PARAM.unpack(head.read(_PARAM.size))
        lengths = (min(*_LENGTH.unpack(head.read(_LENGTH.size)), _MOST_NAME + 1) for _ in range(2))
        objective, booster = (head.read(length).decode("ascii") for length in lengths)
    except (struct.error, UnicodeDecodeError):
        booster = ""
    if booster not in ("gbtree", "dart") or major > 2:
        raise Unreliable("it begins neither as XGBoost's JSON nor as its UBJSON, and is no binary model with trees")
    return _xgboost("xgboost", objective, features=features, classes=classes, targets=targets or 1)


def _xgboost(model_type: str, objective: str, *, features: int, classes: int, targets: int) -> Forest:
    """What an objective says of the number of classes; one of the user's own says nothing, and may be saved under any name."""
    if classes < int(objective.startswith("multi:")) or min(classes, targets) > 1:
        raise Unreliable(f"its objective is {objective[:_MOST_NAME]}, and it says num_class {classes} and {targets} targets")
    is_binary = objective.startswith("binary:") and classes <= 1 and targets == 1
    return Forest(model_type, features, max(classes, 1), targets, is_binary)


def _lightgbm(ends: Ends) -> Forest:
    header, found, _ = ends.head.partition(b"\nTree=")
    first, *lines = header.decode("utf-8", "replace").split("\n")
    if first.strip() != "tree":
        raise Unreliable("it does not begin as LightGBM's text does")
    if not found and ends.size_bytes > len(ends.head):
        lines = lines[:-1]  # cut
    keys = {key: value.strip() for key, _, value in (line.partition("=") for line in lines)}
    classes, trees = (_number(keys.get(key, ""), key) for key in ("num_class", "num_tree_per_iteration"))
    name, *parameters = keys.get("objective", "").split(" ")
    is_several = name in _SEVERAL_CLASSES and f"num_class:{classes}" in parameters
    if trees != classes or is_several != (name in _SEVERAL_CLASSES or classes > 1):
        raise Unreliable(f"it says num_class={classes}, and its objective or num_tree_per_iteration something else")
    features = _number(keys.get("max_feature_idx", ""), "max_feature_idx") + 1
    return Forest("lightgbm", features, classes, is_binary=name == "binary")


def _number(text: Any, what: str) -> int:
    """
    A whole number as the libraries write it: digits alone.

    Raises:
        Unreliable: it is something else.
    """
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 10):
        raise Unreliable(f"its {what} is not a number")
    return int(text)


def _treelite(ends: Ends) -> Forest:
    with suppress(struct.error):
        major, minor, _patch, threshold, leaf, _trees, features = _HEADER.unpack_from(ends.head)
        is_known = {3: minor == 9, 4: {threshold, leaf} <= {2, 3}}.get(major)
        if is_known and (said := (_version_3 if major == 3 else _version_4)(ends.head)):
            return Forest("treelite_checkpoint", features, *said)
    raise Unreliable("it does not begin as a Treelite checkpoint of version 4 or 3.9, or its first numbers do not go together")


def _version_3(head: bytes) -> tuple[int, int, bool] | None:
    task, _, _, by_class, classes, leaf_size = _V3.unpack_from(head, _HEADER.size)
    expected = _V3_ONE if classes == 1 else _V3_VECTORS if leaf_size == classes else _V3_GROVES
    is_whole = task == expected and by_class == (task == _V3_GROVES) and leaf_size == (classes if task == _V3_VECTORS else 1)
    return (classes, 1, task == _V3_ONE) if is_whole else None


def _version_4(head: bytes) -> tuple[int, int, bool] | None:
    task, _, targets = _V4.unpack_from(head, _HEADER.size)
    if not 1 <= targets <= MOST_OUTPUTS // 4:
        return None
    length, *classes, dimensions, wide, deep = struct.unpack_from(f"<Q{targets}iQii", head, _HEADER.size + _V4.size)
    most = max(classes)
    is_whole = length == targets and dimensions == 2 and min(classes) >= 1 and wide in (1, targets) and deep in (1, most)
    is_known = task == _CLASSES or (most == 1 and task <= _ISOLATION)
    return (most, targets, task == _BINARY) if is_whole and is_known else None
