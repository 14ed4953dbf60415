"""
Treelite's checkpoints: binary, the counts at fixed places of the head.

Two layouts are known: that of 3.9, and that of 4. Both put whole numbers of the machine's (little-endian) order one
after the other without padding, and an array's length as 8 bytes before its elements. Pure.

Source: treelite `src/serializer.cc` and `docs/serialization/v3.rst`, `v4.rst`.
"""

from __future__ import annotations

import struct
from typing import Final

from adapter.ends import Ends
from adapter.layout.forests.forest import MOST_OUTPUTS, Forest, Unreliable, forest

_VERSION: Final = struct.Struct("<iii")
_COMMON: Final = struct.Struct("<BBQi")
"""Type of thresholds and of leaves, number of trees, number of features."""
_V3: Final = struct.Struct("<BBB?xxII")
"""Task, whether trees are averaged, then the task's parameters: type of outputs, grove per class, classes, size of a leaf."""
_V4: Final = struct.Struct("<BBi")
"""Task, whether trees are averaged, number of targets."""
_LENGTH: Final = struct.Struct("<Q")
_BINARY, _REGRESSION, _CLASSES, _RANKING, _ISOLATION = range(5)
_V3_ONE, _V3_GROVES, _V3_VECTORS = range(3)


def read(ends: Ends) -> Forest:
    """
    The forest of a checkpoint.tl.

    Raises:
        Unreliable: another version, or numbers that contradict each other.
    """
    try:
        major, minor, patch = _VERSION.unpack_from(ends.head)
        threshold, leaf, _trees, features = _COMMON.unpack_from(ends.head, _VERSION.size)
        offset = _VERSION.size + _COMMON.size
        if (major, minor) == (3, 9):
            return _read_v3(ends.head, offset, features)
        if major != 4 or minor < 0 or patch < 0:
            raise Unreliable(f"it is no Treelite checkpoint of version 4 or 3.9 (its first numbers are {major}, {minor}, {patch})")
        if {threshold, leaf} - {2, 3}:
            raise Unreliable("its header is not one of Treelite 4")
        return _read_v4(ends.head, offset, features)
    except struct.error:
        raise Unreliable(f"it ends in its header, after {ends.size_bytes} bytes") from None


def _read_v3(head: bytes, offset: int, features: int) -> Forest:
    task, _, _, by_class, classes, leaf_size = _V3.unpack_from(head, offset)
    fits = {
        _V3_ONE: classes == 1 and leaf_size == 1 and not by_class,
        _V3_GROVES: classes > 1 and leaf_size == 1 and by_class,
        _V3_VECTORS: classes > 1 and leaf_size == classes and not by_class,
    }
    if not fits.get(task, False):
        raise Unreliable(f"its header says task {task}, {classes} classes and leaves of {leaf_size}, which do not go together")
    return forest("treelite_checkpoint", features=features, classes=classes, is_binary=task == _V3_ONE)


def _read_v4(head: bytes, offset: int, features: int) -> Forest:
    task, _, targets = _V4.unpack_from(head, offset)
    if not 1 <= targets <= MOST_OUTPUTS // 4:
        raise Unreliable(f"it says {targets} targets")
    classes, offset = _array(head, offset + _V4.size, targets)
    shape, _ = _array(head, offset, 2)
    most = max(classes)
    words = f"its header says task {task}, {targets} targets, up to {most} classes and leaves of {shape[0]} × {shape[1]}"
    is_known = task in (_BINARY, _REGRESSION, _CLASSES, _RANKING, _ISOLATION)
    if min(classes) < 1 or not is_known or (most > 1 and task != _CLASSES):
        raise Unreliable(f"{words}, which do not go together")
    if shape[0] not in (1, targets) or shape[1] not in (1, most):
        raise Unreliable(f"{words}, which do not go together")
    return forest("treelite_checkpoint", features=features, classes=most, targets=targets, is_binary=task == _BINARY)


def _array(head: bytes, offset: int, expected: int) -> tuple[tuple[int, ...], int]:
    """The numbers of an array that must have so many, and where the next field begins."""
    (length,) = _LENGTH.unpack_from(head, offset)
    if length != expected:
        raise Unreliable(f"its header has {length} numbers where {expected} belong")
    end = offset + _LENGTH.size
    return struct.unpack_from(f"<{expected}i", head, end), end + 4 * expected
