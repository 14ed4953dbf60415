"""A file that lies about its number of outputs, hides it or is made to be slow is refused in words, in bounded time and memory."""

import json
import struct
import time
import tracemalloc

import pytest

from adapter.errors import InvalidModel
from adapter.layout import forests, rules
from adapter.layout.forests import FORMATS, MOST_OUTPUTS, Forest, Unreliable
from adapter.volume.trees import HEAD_BYTES, TAIL_BYTES
from tests.builders import a_forest, a_listing, a_spec
from tests.unit.layout.cases.builders import ends_of, finished

JSON, UBJSON, BINARY, TEXT, CHECKPOINT = FORMATS
KINDS = {"json": JSON, "ubj": UBJSON, "binary": BINARY, "text": TEXT, "checkpoint": CHECKPOINT}
QUICK_SECONDS, SMALL_BYTES = 10, 64 * 1024 * 1024
PARAMETERS = b'"learner_model_param": {"num_class": "3", "num_feature": "4", "num_target": "1"}'
OBJECTIVE = b'"objective": {"name": "multi:softprob"}'
END = b'}, "version": [2, 1, 0]}'
PADDING = b" " * (TAIL_BYTES + 10)


def read(kind: str, content: bytes) -> Forest:
    return forests.read(kind, ends_of(content))


def learner(*members: bytes, end: bytes = END) -> bytes:
    return b'{"learner": {' + b", ".join(members) + end


@pytest.mark.parametrize("form", KINDS)
@pytest.mark.parametrize("classes", [1, 3, MOST_OUTPUTS])
def test_every_format_says_its_counts(form, classes):
    """What is compared below is what is read."""
    found = read(KINDS[form], a_forest(form, 7, classes))

    assert (found.outputs, found.features, found.model_type) == (classes, 7, KINDS[form])


@pytest.mark.parametrize(
    "content",
    [
        learner(b'"feature_names": ["num_class", "a\\"b", "{", "\\u00e9"]', PADDING + b'"gradient_booster": {}', PARAMETERS, OBJECTIVE),
        learner(b'"attributes": {"scikit_learn": "{\\"num_class\\": 9}"}', PARAMETERS, OBJECTIVE),
        learner(OBJECTIVE, PARAMETERS, b'"gradient_booster": {"model": {"trees": [{"id": 0}]}}'),
        learner(PARAMETERS, OBJECTIVE, end=b"}}  \n"),
        b" \n" + learner(b"\n" + PARAMETERS, OBJECTIVE),
        learner(b'"attributes": {"learner_model_param": "x"}', PADDING + PARAMETERS, OBJECTIVE),
    ],
    ids=[
        "names like keys",
        "an attribute like the key",
        "keys in another order",
        "no version",
        "spaces",
        "an attribute called like the key",
    ],
)
def test_xgboosts_json_may_look_different(content):
    """Names of features, attributes and spaces are the user's."""
    assert read(JSON, content).outputs == 3


LIARS = {
    "the key in a string alone": learner(b'"attributes": {"a": "\\"learner_model_param\\": {"}', OBJECTIVE),
    "the key too deep": b'{"Model": ' + learner(PARAMETERS, OBJECTIVE) + b"}",
    "the key too far up": b'{"learner_model_param": {"num_class": "3", "num_feature": "4"}, "objective": {"name": "multi:softprob"}}',
    "something behind the end": learner(PARAMETERS, OBJECTIVE) + b"{}",
    "an end that is missing": learner(PARAMETERS, OBJECTIVE)[:-1],
    "several classes without a number": learner(PARAMETERS.replace(b'"3"', b'"0"'), OBJECTIVE),
    "no objective": learner(PARAMETERS),
    "no number": learner(b'"learner_model_param": {"num_feature": "4"}', OBJECTIVE),
    "a number with letters behind it": learner(PARAMETERS.replace(b'"3"', b'"1e3"'), OBJECTIVE),
    "a number in other digits": learner(PARAMETERS.replace(b'"3"', '"٣"'.encode()), OBJECTIVE),
    "a negative number": learner(PARAMETERS.replace(b'"3"', b'"-3"'), OBJECTIVE),
    "a number beyond all": learner(PARAMETERS.replace(b'"3"', b'"4294967299"'), OBJECTIVE),
    "classes and targets": learner(PARAMETERS.replace(b'"num_target": "1"', b'"num_target": "2"'), OBJECTIVE),
    "no features": learner(PARAMETERS.replace(b'"4"', b'"0"'), OBJECTIVE),
    "counts before the trees of a large file": learner(PARAMETERS, OBJECTIVE, PADDING + b'"gradient_booster": {}'),
    "counts that are no object": learner(b'"learner_model_param": "num_class"', OBJECTIVE),
    "no UTF-8": learner(PARAMETERS, OBJECTIVE, b'"x": "\xff"'),
    "nothing": b"",
    "a brace": b"{",
    "another JSON": b'{"a": 1}',
    "a pickle": b"\x80\x04\x95" + bytes(500),
    "base64": b"bs64" + bytes(500),
    "zeros": bytes(1000),
}


GOOD = a_forest("ubj", 4, 3)
KEY = b"L" + (19).to_bytes(8, "big") + b"learner_model_param"
LONG = (2**62).to_bytes(8, "big")
UBJSON_LIARS = {
    "a word that is no key": GOOD.replace(KEY, b"L" + (20).to_bytes(8, "big") + b"xlearner_model_param"),
    "something behind the end": GOOD + b"}",
    "an end that is missing": GOOD[:-1],
    "a key too deep": b"{U\x05Model" + GOOD + b"}",
    "an array that never ends": GOOD[:-1] + b"U\x01x[",
    "many values of no bytes": GOOD[:-1] + b"U\x01x[$Z#L" + LONG + b"}",
    "many values behind the end": GOOD[:-1] + b"U\x01x[$l#L" + LONG + b"}",
    "many untyped values": GOOD[:-1] + b"U\x01x[#L" + LONG + b"Z" * 1000 + b"}",
    "a negative length": GOOD[:-1] + b"U\x01x[$l#i\xff}",
    "a long string": GOOD[:-1] + b"U\x01xSL" + LONG + b"}",
    "a packed object": GOOD[:-1] + b"U\x01x{$i#U\x01U\x01a\x01}",
    "a deep array": GOOD[:-1] + b"U\x01x" + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a count that is no whole number": GOOD[:-1] + b"U\x01x[#d\x3f\x80\0\0Z}",
    "no type": GOOD[:-1] + b"U\x01x?}",
}


def test_ubjson_may_go_on_with_anything_that_xgboost_writes():
    """Packed and plain arrays, all numbers, words."""
    more = b"U\x01a[$l#L" + (2).to_bytes(8, "big") + bytes(8) + b"U\x01b[#U\x03TFZU\x01cD" + bytes(8) + b"U\x01d[#U\x02d\0\0\0\0SU\0"

    assert read(UBJSON, GOOD[:-1] + more + b"}").outputs == 3


def text(**keys: str) -> bytes:
    said = {"num_class": "3", "num_tree_per_iteration": "3", "max_feature_idx": "3", "objective": "multiclass num_class:3"} | keys
    return b"tree\nversion=v4\n" + "".join(f"{key}={value}\n" for key, value in said.items() if value).encode() + b"\nTree=0\n"


TEXT_LIARS = {
    "the key far away alone": text(num_class="", version="a " * HEAD_BYTES + "\nnum_class=3"),
    "other trees": text(num_tree_per_iteration="1"),
    "another objective": text(objective="multiclass num_class:4"),
    "an objective without a number": text(objective="multiclass"),
    "an objective of one number": text(objective="regression"),
    "one class of several": text(num_class="1", num_tree_per_iteration="1"),
    "no objective": text(objective=""),
    "no features": text(max_feature_idx=""),
    "negative features": text(max_feature_idx="-1"),
    "no number": text(num_class="three"),
    "no head": b"\n" + text(),
    "nothing": b"",
    "one line": b"tree",
}


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lightgbms_features_may_be_called_like_keys(end):
    """Each feature is a line of its own behind the trees, with its importance."""
    names = b"end of trees\n\nfeature_importances:\nnum_class=12\nmax_feature_idx=7\nnum_tree_per_iteration=5\nTree=3\n"
    content = text(feature_names="num_class max_feature_idx num_tree_per_iteration Tree") + names

    assert read(TEXT, content.replace(b"\n", end)).outputs == 3


def test_lightgbms_head_may_be_longer_than_what_is_read():
    """Ten thousand names of features."""
    names = " ".join(f"num_class={number}" for number in range(10_000))

    assert read(TEXT, text(feature_names=names)).outputs == 3
    assert read(TEXT, text().replace(b"\n", b"\r\n").replace(b"tree\r", b"tree", 1)).features == 4


def checkpoint(version=(4, 8, 1), kinds=(2, 2), features=4, task=2, targets=1, classes=(3,), shape=(1, 3)) -> bytes:
    head = struct.pack("<iiiBBQi", *version, *kinds, 1, features) + struct.pack("<BBi", task, 1, targets)
    return head + struct.pack(f"<Q{len(classes)}i", len(classes), *classes) + struct.pack(f"<Q{len(shape)}i", len(shape), *shape)


def old_checkpoint(task=2, by_class=False, classes=3, leaf=3) -> bytes:
    return struct.pack("<iiiBBQi", 3, 9, 1, 2, 2, 1, 4) + struct.pack("<BBB?xxII", task, 1, 0, by_class, classes, leaf)


CHECKPOINT_LIARS = {
    "a later version": checkpoint(version=(5, 0, 0)),
    "an earlier version": checkpoint(version=(3, 4, 0)),
    "another file": b"{" * 200,
    "unknown numbers": checkpoint(kinds=(7, 2)),
    "fewer classes than targets": checkpoint(targets=2),
    "targets beyond all": checkpoint(targets=2**31 - 1),
    "no targets": checkpoint(targets=0, classes=()),
    "classes beyond all": checkpoint(classes=(2**31 - 1,)),
    "no classes": checkpoint(classes=(0,), shape=(1, 1)),
    "a task of one output": checkpoint(task=1),
    "an unknown task": checkpoint(task=9),
    "leaves of another size": checkpoint(shape=(1, 5)),
    "leaves of three numbers": checkpoint(shape=(1, 3, 1)),
    "negative features": checkpoint(features=-4),
    "a cut": checkpoint()[:-3],
    "3.9: groves that are none": old_checkpoint(task=1),
    "3.9: leaves of another size": old_checkpoint(leaf=2),
    "3.9: one number of several": old_checkpoint(task=0),
    "3.9: classes as leaves": old_checkpoint(task=3),
    "nothing": b"",
}


def test_both_layouts_of_checkpoints_are_known():
    """What the liars above differ from."""
    assert read(CHECKPOINT, checkpoint()).outputs == read(CHECKPOINT, old_checkpoint()).outputs == 3
    assert read(CHECKPOINT, old_checkpoint(task=1, by_class=True, leaf=1)).outputs == 3


def test_a_forest_may_have_seen_one_class_alone():
    """A random forest, fitted to labels that are all equal."""
    assert read(CHECKPOINT, checkpoint(classes=(1,), shape=(1, 1))).outputs == 1


@pytest.mark.parametrize("objective", ["binary:logistic", "rank:ndcg"])
def test_the_objective_of_xgboost_may_be_a_function_of_the_users(objective):
    """It is saved under any name, and the classes are what they are."""
    for form in ("json", "ubj", "binary"):
        found = read(KINDS[form], a_forest(form, 4, 3, objective))

        assert (found.outputs, found.is_binary) == (3, False)


BINARY_GOOD = a_forest("binary", 4, 3)
BINARY_LIARS = {
    "another booster": BINARY_GOOD.replace(b"gbtree", b"linear"),
    "a long name": BINARY_GOOD.replace(struct.pack("<Q", 14), struct.pack("<Q", 2**63)),
    "no several classes": a_forest("binary", 4, 1, "multi:softprob"),
    "a cut": BINARY_GOOD[:-1],
    "negative classes": BINARY_GOOD.replace(struct.pack("<i", 3), struct.pack("<i", -3), 1),
}


LIES = {JSON: LIARS, UBJSON: UBJSON_LIARS, TEXT: TEXT_LIARS, CHECKPOINT: CHECKPOINT_LIARS, BINARY: BINARY_LIARS}


@pytest.mark.parametrize(
    ("kind", "content"),
    [pytest.param(kind, content, id=f"{kind} {name}") for kind, liars in LIES.items() for name, content in liars.items()],
)
def test_what_cannot_be_told_is_not_guessed(kind, content):
    """Never another number than Treelite would take."""
    with pytest.raises(Unreliable, match=r"^it"):
        read(kind, content)


DEEP = b'"x": ' + b"[" * 100_000 + b"]" * 100_000
SLOW = {
    "json: deep": (JSON, learner(PARAMETERS, OBJECTIVE, DEEP)),
    "json: many keys": (JSON, learner(PARAMETERS, OBJECTIVE, b",".join(b'"%d":0' % number for number in range(25_000)))),
    "json: digits": (JSON, learner(PARAMETERS, OBJECTIVE, b'"x": ' + b"9" * 250_000)),
    "json: quotes": (JSON, b'{"' + b'"learner_model_param"' * 12_000),
    "json: backslashes": (JSON, learner(PARAMETERS, b'"x": "' + b"\\\\" * 120_000 + b'"', OBJECTIVE)),
    "ubjson: deep": (UBJSON, GOOD[:-1] + b"U\x01x" + b"[" * 200_000),
    "ubjson: many": (UBJSON, GOOD[:-1] + b"U\x01x[" + b"Z" * 250_000 + b"]}"),
    "ubjson: many keys": (UBJSON, GOOD[:-1] + b"".join(b"U\x05%05dZ" % number for number in range(30_000)) + b"}"),
    "text: lines": (TEXT, b"tree\n" + b"\n" * 200_000),
    "text: keys": (TEXT, b"tree\n" + b"".join(b"%d=\n" % number for number in range(20_000))),
    "text: signs": (TEXT, text(feature_names="=" * 200_000)),
    "checkpoint: targets": (CHECKPOINT, checkpoint(targets=16_000) + bytes(200_000)),
}


@pytest.mark.parametrize(("kind", "content"), SLOW.values(), ids=SLOW)
def test_no_file_takes_long_or_much_memory(kind, content):
    """Whatever comes of it; what is read is never more than both ends."""
    tracemalloc.start()
    started = time.process_time()
    try:
        read(kind, content)
    except Unreliable:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert time.process_time() - started < QUICK_SECONDS
    assert peak < SMALL_BYTES


@pytest.mark.parametrize(("suffix", "content"), [("json", LIARS["no number"]), ("ubj", UBJSON_LIARS["no type"]), ("tl", b"")])
def test_the_refusal_says_what_to_add(suffix, content):
    """One line, with the file's own name."""
    found = rules.plan(a_spec(model_type="fil"), a_listing([f"churn.{suffix}"], is_single_file=True), {})
    with pytest.raises(InvalidModel) as refused:
        finished(found, content)

    assert refused.value.text.startswith(
        f"churn.{suffix}: what the FIL backend must be told of this forest cannot be taken from the file: it"
    )
    assert refused.value.text.endswith("add a config.pbtxt with the dims of input__0 and output__0, and with output_class")
    assert "\n" not in refused.value.text


def test_a_users_own_config_decides_where_the_file_does_not():
    """The refusal's advice works."""
    config = b'backend: "fil" parameters { key: "model_type" value { string_value: "xgboost_json" } }'
    listing = a_listing(["config.pbtxt", "1/xgboost.json"])
    found = rules.plan(a_spec(model_type="fil"), listing, {listing.find("config.pbtxt"): config})

    assert finished(found, LIARS["no number"]).written["config.pbtxt"] == config


def test_the_place_that_the_content_asks_for_may_be_taken():
    """A file of the other name beside it; nothing is placed over anything."""
    listing = a_listing(["1/xgboost.model", "1/xgboost.json/x"])
    found = rules.plan(a_spec(model_type="xgboost"), listing, {})

    assert list(finished(found, a_forest("ubj")).links) == ["1/xgboost.json/x", "1/xgboost.ubj"]
    with pytest.raises(InvalidModel, match=r"xgboost\.json would be a file and a directory at once"):
        finished(found, json.dumps(json.loads(a_forest("json"))).encode())
