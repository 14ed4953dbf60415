"""
The nouns that the parsers of forests share: what a forest is for the FIL backend, and why it cannot be told.

Pure, and knows no format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from adapter.ends import Count

MOST_OUTPUTS = 65_536
"""Numbers per row. Far above any real forest; Triton would make room for more."""
MOST_FEATURES = 2**31 - 1


class Unreliable(Exception):
    """The file does not say it, or contradicts itself; one clause says what."""


@dataclass(frozen=True, kw_only=True)
class Forest:
    """What the FIL backend will read from one file."""

    file_name: str
    """Under which the backend finds this format."""
    model_type: str
    """The backend's word for the format."""
    features: int
    """Numbers that it reads for each row, whatever the request has."""
    classes: int
    """1 for a regression, a ranking and two classes."""
    targets: int = 1
    is_binary: bool = False
    """Its one number is the probability of the second of two classes."""

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


@dataclass(frozen=True)
class Format:
    """One of the formats, and what must be counted in a file of it."""

    file_name: str
    model_type: str
    count: Count | None = None
    """The key that says the numbers, where the format allows it at more than one place; None where its place is fixed."""


XGBOOST_WORD = b"learner_model_param"
_XGBOOST = Count(XGBOOST_WORD, (b"\\u005", b"\\u006", b"\\u007"))
"""The others are JSON's way to write a letter of the word as a number, which could hide the word."""
_LIGHTGBM = Count(
    b"\nnum_class=",
    (b"\nmax_feature_idx=", b"\nnum_tree_per_iteration=", b"\rnum_class=", b"\rmax_feature_idx=", b"\rnum_tree_per_iteration="),
    until=b"\nTree=",
)
"""Behind the trees a line may be the name of a feature with its importance. Early releases of Treelite take `\\r` for the end of a line."""
FORMATS: Mapping[str, Format] = {
    row.model_type: row
    for row in (
        Format("xgboost.json", "xgboost_json", _XGBOOST),
        Format("xgboost.ubj", "xgboost_ubj", _XGBOOST),
        Format("xgboost.model", "xgboost", _XGBOOST),
        Format("model.txt", "lightgbm", _LIGHTGBM),
        Format("checkpoint.tl", "treelite_checkpoint"),
    )
}
"""The backend's word for a format → the format, in the order of how usual they are."""


def forest(model_type: str, *, features: int, classes: int, targets: int = 1, is_binary: bool = False) -> Forest:
    """
    A forest whose numbers are plausible.

    Raises:
        Unreliable: they are not.
    """
    for number, what, most in ((features, "features", MOST_FEATURES), (classes * targets, "outputs", MOST_OUTPUTS)):
        if not 1 <= number <= most:
            raise Unreliable(f"it says {number} {what}")
    return Forest(
        file_name=FORMATS[model_type].file_name,
        model_type=model_type,
        features=features,
        classes=classes,
        targets=targets,
        is_binary=is_binary,
    )


def number(text: str | None, what: str) -> int:
    """
    A whole number as the libraries write it: digits alone.

    Raises:
        Unreliable: it is absent, or something else.
    """
    if text is None:
        raise Unreliable(f"it has no {what}")
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise Unreliable(f"its {what} is no number")
    return int(text)
