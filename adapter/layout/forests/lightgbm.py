r"""
LightGBM's text format: `key=value` lines before the first tree.

A key that comes again would count instead, wherever it stands before the trees; so the keys of the counts must
be there once, each as a line of its own. Pure.

Source: LightGBM `src/boosting/gbdt_model_text.cpp`; treelite `src/model_loader/lightgbm.cc` (the last of equal keys
before the first line `Tree=…` counts; a line is split at its first `=`; several classes need the objective multiclass or
multiclassova; early releases take the classes from `num_tree_per_iteration`, and `\r` for the end of a line).
"""

from __future__ import annotations

from adapter.ends import Ends
from adapter.layout.forests.forest import Forest, Unreliable, forest, number

_SEVERAL_CLASSES = ("multiclass", "softmax", "multiclassova", "multiclass_ova", "ova", "ovr")


def read(ends: Ends) -> Forest:
    """
    The forest of a model.txt.

    Raises:
        Unreliable: the head does not have it, or contradicts itself.
    """
    header, found, _ = (b"\n" + ends.head).partition(b"\nTree=")
    lines = header.split(b"\n")
    if not found and ends.size_bytes > len(ends.head):
        lines.pop()  # cut
    if lines[1:2] != [b"tree"] and lines[1:2] != [b"tree\r"]:
        raise Unreliable("it does not begin as LightGBM's text does")
    keys: dict[bytes, str] = {}
    for line in lines[2:]:
        key, _, value = line.partition(b"=")
        keys.setdefault(key, value.decode("utf-8", "replace").strip())
    classes = number(keys.get(b"num_class"), "num_class")
    features = number(keys.get(b"max_feature_idx"), "max_feature_idx") + 1
    per_iteration = keys.get(b"num_tree_per_iteration")
    if ends.mentions != 1:
        raise Unreliable(f"it has {ends.mentions} lines num_class before its trees")
    if ends.others != 1 + (per_iteration is not None):
        raise Unreliable("it has the line max_feature_idx, num_tree_per_iteration or num_class a second time before its trees")
    if per_iteration is not None and number(per_iteration, "num_tree_per_iteration") != classes:
        raise Unreliable(f"it says num_class={classes} and num_tree_per_iteration={per_iteration}")
    name, *parameters = keys.get(b"objective", "").split(" ")
    _check_objective(name, parameters, classes)
    return forest("lightgbm", features=features, classes=classes, is_binary=name == "binary")


def _check_objective(name: str, parameters: list[str], classes: int) -> None:
    if classes == 1 and name not in _SEVERAL_CLASSES:
        return
    said = [word.partition(":")[2] for word in parameters if word.startswith("num_class:")]
    if name not in _SEVERAL_CLASSES:
        raise Unreliable(f"it says num_class={classes}, and its objective is not one of several classes")
    if said != [str(classes)]:
        raise Unreliable(f"it says num_class={classes}, and its objective says {said[0] if said else 'none'}")
