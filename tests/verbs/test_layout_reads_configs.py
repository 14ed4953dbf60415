"""`layout`: a `config.pbtxt` of the user is refused with line and column, or written as it was but for what the adapter must change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.layout.cases.builders import config_of
from tests.verbs.layouts import shown

MODEL = {"1/model.onnx": "x", "1/model.py": "x"}


def step(name: str) -> str:
    return f"ensemble_scheduling {{ step {{ model_name: {name} }} }}"


UNUSABLE = [
    ("input { data_type: TYPE_FLOAT }", "line 1, column 20: data_type cannot be TYPE_FLOAT; TYPE_FP32 seems to be meant"),
    ("input {\n  data_type: FP32 }", "line 2, column 14: data_type cannot be FP32; TYPE_FP32 seems to be meant"),
    ("output [ { }, { data_type: type_Int_8 } ]", "line 1, column 28: data_type cannot be type_Int_8; TYPE_INT8 seems to be meant"),
    ("output { data_type: BYTES }", "line 1, column 21: data_type cannot be BYTES; TYPE_STRING seems to be meant"),
    ("output { data_type: 'TYPE_FP32' }", "line 1, column 21: data_type cannot be 'TYPE_FP32'; TYPE_FP32 seems to be meant"),
    ("output { data_type: 1.5 }", 'line 1, column 21: data_type: Enum type "inference.DataType" has no value named 1.5.'),
    ("output { data_type: 2147483648 }", "line 1, column 21: data_type: Value out of range"),
    ("instance_group { kind: KIND_CUDA }", "kind cannot be KIND_CUDA; KIND_GPU seems to be meant"),
    ("input { dims: [ 1, 'x' ] }", "line 1, column 20: dims: Couldn't parse integer: 'x'"),
    (f"input {{ dims: {'1' * 50} }}", "line 1, column 15: dims: Value out of range"),
    (f"input {{ dims: {'9' * 100_000} }}", "line 1, column 15: dims: Couldn't parse integer: 9"),
    ("model_warmup { batch_size: -1 }", "line 1, column 28: batch_size: Value out of range"),
    ("response_cache { enable: yes }", 'line 1, column 26: enable: Expected "true" or "false".'),
    ("sequence_batching { direct { minimum_slot_utilization: 'x' } }", "line 1, column 56: minimum_slot_utilization: Couldn't parse float"),
    ("parameters { key: 'k' value { string_value: 7 } }", "line 1, column 45: string_value: Expected string but found: '7'"),
    ("parameters { key: 'k' value: 'v' }", 'line 1, column 30: value: Expected "{".'),
    ("input { reshape { } reshape { } }", 'line 1, column 29: reshape: Message type "inference.ModelInput" should not have multiple'),
    ("dynamic_batching { } ensemble_scheduling { }", 'column 22: ensemble_scheduling: Field "ensemble_scheduling" is specified along'),
    ("backend: [ 'x' ]", "line 1, column 10: backend: Expected string but found: '['"),
    ('backend: "caf\\351"', "line 1, column 10: backend: not UTF-8"),
    (b"a: 1\nbackend: 'caf\xe9'", "line 2, column 10: backend: not UTF-8"),
    ("backend: 'x'\n  name: 7", "line 2, column 9: name: Expected string but found: '7'"),
    ("version_policy { specific { versions [ ] } }", 'line 1, column 38: versions: Expected ":".'),
    ("name { a: 1 }", 'line 1, column 6: name: Expected ":".'),
    ("max_batch_size: '4'", "line 1, column 17: max_batch_size: Couldn't parse integer: '4'"),
    ("max_batch_size: '\x1b[31m'", "line 1, column 17: max_batch_size: Couldn't parse integer: '?[31m'"),
    ("max_batch_size: 1.5", "line 1, column 17: max_batch_size: Couldn't parse integer: 1.5"),
    ("max_batch_size: -1", "max_batch_size is -1, 0 or more is expected"),
    ("version_policy [ { } ]", 'line 1, column 16: version_policy: Expected "{".'),
    ("version_policy { all { } latest { } }", 'line 1, column 26: latest: Field "latest" is specified along with field "all", another'),
    ("cc_model_filenames { key: 86 value: 'model_86.plan' }", "line 1, column 27: key: Expected string but found: '86'"),
    ("output: [ { }, 1 ]", 'line 1, column 16: output: Expected "{".'),
    ("[a.b]: 0", "line 1, column 1: [a.b] is an extension, and Triton's config has none"),
    ("input { [ type.googleapis.com / x.Y ] { } }", "line 1, column 9: [type.googleapis.com/x.Y] is an extension"),
    ("name: 'a'\nname: 'a'", 'line 2, column 7: name: Message type "inference.ModelConfig" should not have multiple "name" fields.'),
]
UNREADABLE = [
    ('backend: "x"\nname "y"', "line 2, column 6: expected ':', found '\"y\"'"),
    (b"a: 1\nb\xe9: 1", "line 2, column 2: expected ':', found '\\udce9: 1'"),
    (b"PK\x03\x04\x00\x00", "line 1, column 3"),
    (b"#" * (1024 * 1024 + 1), "more than 1048576"),
    ("a", "line 1, column 2: expected ':', found the end of the text"),
    ("a 1", "line 1, column 3: expected ':', found '1'"),
    ("a: }", "line 1, column 4: expected a value, found '}'"),
    ("a {\n  b: 1\n", "line 3, column 1: expected a field name or '}', found the end of the text"),
    ("a { b: 1 >", "line 1, column 10: expected a field name or '}', found '>'"),
    ("a: 1 }", "line 1, column 6: expected a field name, found '}'"),
    ("a: 1;; b: 2", "line 1, column 6: expected a field name, found '; b: 2'"),
    ("a: [1, ]", "line 1, column 8: expected a value, found ']'"),
    ("a: [1 2]", "line 1, column 7: expected ',' or ']', found '2]'"),
    ("a: [[1]]", "line 1, column 5: expected a value, found '[1]]'"),
    ("a: -b", "line 1, column 4: expected a value, found '-b'"),
    ("a: 12b", "line 1, column 4: expected a value, found '12b'"),
    ("a: 1.2.3", "line 1, column 4: expected a value, found '1.2.3'"),
    ("a: 089", "line 1, column 4: expected a value, found '089'"),
    ('é: "x"', "line 1, column 1: expected a field name, found 'é: \"x\"'"),
    ('x: 1\na: "x\ny"', "line 2, column 4: expected a value, found '\"x'"),
    (r'a: "x\q"', "line 1, column 4: expected a value, found '\"x\\\\q\"'"),
    (r'a: "\U00110000"', "line 1, column 4: expected a value, found '\"\\\\U00110000\"'"),
    ("[]: 1", "line 1, column 1: [] is an extension, and Triton's config has none"),
    ("[a: 1", "line 1, column 3: expected a field name, found ': 1'"),
    ("a: 1\r\nb: \0", "line 2, column 4: expected a value, found '\\x00'"),
    ("# b\0c\na: 1", "line 1, column 4: expected a field name, found '\\x00c'"),
    ("a: 'b\0'", "line 1, column 4: expected a value, found \"'b\\x00'\""),
    ("a{" * 500_000, "nested more than 64 levels deep"),
    ("a:[<" * 250_000, "nested more than 64 levels deep"),
]


@pytest.mark.parametrize(
    ("text", "words", "how"),
    [(text, words, "used: line ") for text, words in UNUSABLE] + [(text, words, "") for text, words in UNREADABLE],
    ids=lambda value: repr(value)[:40],
)
def test_what_triton_could_not_use_is_refused_with_its_place(text: str | bytes, words: str, how: str, tmp_path: Path) -> None:
    """Triton would only say "failed to poll from model repository"."""
    found = shown(tmp_path, {"config.pbtxt": text, **MODEL})
    assert found.code == 1
    assert found.refusal.startswith(f"config.pbtxt cannot be {how}" if how else "config.pbtxt ")
    assert words in found.refusal


FUTURE = """\
# served since 2031
name: "old"   # not ours to choose
backend: "onnxruntime"
some_future_field { enable: true  level: [ 1, 2 ] }
next { [nvidia.next]: { a: 'b' } [ type.googleapis.com / x.Y ] { } }
input [
  {
    name: "x"  # the only one
    data_type: TYPE_BF16
    optional: true
  }
]
"""
MERGED = """\
backend: "x"
# the pixels
input {
  name: "a"  # first
  data_type: TYPE_UINT8
  format: FORMAT_NCHW
  dims: [ 4, 5 ]  # as trained
  reshape { shape: [ 20 ] }
}
output [ { name: "a" dims: 1 dims: 2 data_type: TYPE_FP32 label_filename: "l.txt" }, { name: "gone" } ]
"""


def merged(start: str, *gone: str) -> str:
    """MERGED with the type and dims of A in its first entry."""
    text = MERGED.replace(start, f"{start} data_type: TYPE_FP32 dims: [ 1, 2 ]", 1)
    for words in gone:
        text = text.replace(words, "", 1)
    return text


A = {"name": "a", "datatype": "FP32", "shape": [1, 2]}
B = {"name": "b", "datatype": "INT64", "shape": [-1]}
WITHOUT_SCHEMA = [
    (FUTURE, FUTURE.replace('name: "old"   #', "   #")),
    ("\n# nothing\n", "\n# nothing\n"),
    ('name: "x" backend: "y"', ' backend: "y"\n'),
    ("a: 1\nname: 'x'\nc: 3\n", "a: 1\n\nc: 3\n"),
    ("  name: 'x' ;  \nc: 3", "\nc: 3\n"),
    ("a: 1, name: 'x', c: 3", "a: 1,  c: 3\n"),
    ("name: 'x' # why\nc: 3", " # why\nc: 3\n"),
    ("input { name: 'x' }\n", "input { name: 'x' }\n"),
    ("parameters { key: 'name' value { string_value: 'x' } }", "parameters { key: 'name' value { string_value: 'x' } }\n"),
    ('\ufeffname: "x"\nbackend: "y"', '\nbackend: "y"\n'),
    (b"# caf\xe9\nname: 'x' # \xe9\nnext: 'caf\xe9'", "# caf\ufffd\n # \ufffd\nnext: 'caf\ufffd'\n"),
    ("next_field: 'x' next_field { data_type: FP32 }", "next_field: 'x' next_field { data_type: FP32 }\n"),
    ("input { data_type: TYPE_FP8_E4M3 }", "input { data_type: TYPE_FP8_E4M3 }\n"),
    ("instance_group { kind: KIND_NPU }", "instance_group { kind: KIND_NPU }\n"),
    ("input { data_type: 99 next { kind: 7 } }", "input { data_type: 99 next { kind: 7 } }\n"),
    ("version_policy { next { } next { } }", "version_policy { next { } next { } }\n"),
    ("max_batch_size: 0 max_batch_size: 4", "max_batch_size: 0 max_batch_size: 4\n"),
]
WITH_SCHEMA = [
    ({"inputs": [A]}, MERGED, merged("input {", "  data_type: TYPE_UINT8", "dims: [ 4, 5 ]")),
    (
        {"outputs": [B, A]},
        MERGED,
        MERGED[: MERGED.index("output")]
        + 'output {\n  name: "b"\n  data_type: TYPE_INT64\n  dims: [ -1 ]\n}\n'
        + 'output { data_type: TYPE_FP32 dims: [ 1, 2 ] name: "a"    label_filename: "l.txt" }\n',
    ),
    (
        {"inputs": [A]},
        "input [ { name: 'a' dims: 1 dims: [2] data_type: TYPE_FP32 } ]  # so\n",
        "input [ { data_type: TYPE_FP32 dims: [ 1, 2 ] name: 'a'    } ]  # so\n",
    ),
    ({"inputs": [A]}, "input {name:'a'}", "input { data_type: TYPE_FP32 dims: [ 1, 2 ]name:'a'}\n"),
    ({"inputs": [A]}, "input <name: 'a' dims: [7]>", "input < data_type: TYPE_FP32 dims: [ 1, 2 ]name: 'a' >\n"),
    (
        {"inputs": [A]},
        "input { name: 'a' dims: 9 } # first\ninput { dims: 3 }\nbackend: 'x'\n",
        "input { data_type: TYPE_FP32 dims: [ 1, 2 ] name: 'a'  }\n # first\n\nbackend: 'x'\n",
    ),
    (
        {"inputs": [A]},
        "backend: 'x' # end",
        "backend: 'x' # end\ninput {\n  name: \"a\"\n  data_type: TYPE_FP32\n  dims: [ 1, 2 ]\n}\n",
    ),
    (
        {"inputs": [{**A, "shape": [-1, 64, -1]}]},
        "max_batch_size: 8 input { name: 'a' dims: [64, -1] data_type: TYPE_FP32 }\n",
        "max_batch_size: 8 input { data_type: TYPE_FP32 dims: [ 64, -1 ] name: 'a'   }\n",
    ),
]


@pytest.mark.parametrize(
    ("schema", "text", "written"),
    [(None, *row) for row in WITHOUT_SCHEMA] + WITH_SCHEMA,
    ids=lambda value: repr(value)[:40],
)
def test_the_rest_of_a_config_stays_as_its_author_wrote_it(schema: object, text: str | bytes, written: str, tmp_path: Path) -> None:
    """The model's own name goes, and a schema's tensors come; comments, order, form and fields of the future stay."""
    found = shown(tmp_path, {"config.pbtxt": text, **MODEL}, schema=schema)
    assert found.code == 0, found.text
    assert found.configs["m"] == written


def test_a_config_with_two_entries_of_a_name_is_refused(tmp_path: Path) -> None:
    """The schema may mean either of them."""
    found = shown(tmp_path, {"config.pbtxt": "input { name: 'a' }\ninput { name: 'a' }", **MODEL}, schema={"inputs": [A]})
    assert "line 2, column 7: the input a is there twice" in found.refusal


NATIVE = {"1/m": "x", "2/m": "x", "10/m": "x", "labels.txt": "x", "extra/x": "x"}


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ("", {"10"}),
        ("version_policy { latest { num_versions: 1 } }", {"10"}),
        ("version_policy: { latest: { num_versions: 2 } }", {"10", "2"}),
        ("version_policy { latest { num_versions: 9 } }", {"10", "2", "1"}),
        ("version_policy { all {} }", {"10", "2", "1"}),
        ("version_policy { }", {"10", "2", "1"}),
        ("version_policy { some_future_policy { } }", {"10", "2", "1"}),
        ("version_policy { specific { versions: [ 1 , 2 ] } }", {"2", "1"}),
        ("version_policy { specific { versions: 1 versions: [ 10 ] } }", {"10", "1"}),
        ("version_policy < specific < versions: 2 versions: 7 > >", {"2"}),
    ],
)
def test_versions_that_the_policy_serves_are_placed_with_what_is_no_version(policy: str, versions: set[str], tmp_path: Path) -> None:
    """Triton's own rule, an empty policy included."""
    found = shown(tmp_path, {"config.pbtxt": f"backend: 'onnxruntime' {policy}", **NATIVE}, "onnx")
    assert found.placed["m"].keys() == {"labels.txt", "extra/x", *(f"{version}/m" for version in versions)}


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("latest { num_versions: 0 }", "the latest 0"),
        ("latest: {}", "the latest 0"),
        ("specific { versions: [4, 7] }", "specific versions 4, 7"),
        ("specific { }", "specific versions (none)"),
    ],
)
def test_a_policy_that_serves_none_is_refused_in_words(policy: str, words: str, tmp_path: Path) -> None:
    found = shown(tmp_path, {"config.pbtxt": f"version_policy {{ {policy} }}", **NATIVE}, "onnx")
    assert found.code == 1
    assert words in found.refusal


@pytest.mark.parametrize(
    "name",
    ["00", "01", "007", "-1", "+1", "-0", " 1", "1 ", "1abc", "1_old", "1.5", "0x1", "9223372036854775808", "9" * 20, "١", "²", "\t3"],
)
def test_a_directory_that_triton_would_misread_as_a_version_is_refused(name: str, tmp_path: Path) -> None:
    found = shown(tmp_path, {"config.pbtxt": "", "1/model.onnx": "x", f"{name}/model.onnx": "x"})
    assert found.code == 1
    assert "Triton would misread directory" in found.refusal


@pytest.mark.parametrize("name", ["0", "9", "2024", "999999999999999999", "9223372036854775807"])
def test_plain_numbers_are_versions(name: str, tmp_path: Path) -> None:
    """Zero included, up to the largest number of 64 bits."""
    assert f"{name}/model.onnx" in shown(tmp_path, {f"{name}/model.onnx": "x"}, "onnx").placed["m"]


@pytest.mark.parametrize("name", ["v1", "assets", "-", "+", "--1", "_1", "a1", "½"])
def test_other_names_are_just_directories(name: str, tmp_path: Path) -> None:
    found = shown(tmp_path, {"config.pbtxt": "", "1/model.onnx": "x", f"{name}/x": "x"})
    assert set(found.placed["m"]) == {"1/model.onnx", f"{name}/x"}


@pytest.mark.parametrize(
    ("literal", "name"),
    [
        ("'it\"s'", 'it"s'),
        ('"a" \'b\' # and\n "c"', "abc"),
        (r'"\a\101\x42\x43é"', "?ABCé"),
        (r'"\303\251"', "é"),
        (r'"\b\f\n\r\t\v\\X\'"', "??????\\X'"),
        (r'"\U0001F600"', "😀"),
        ('"é # { ; "', "é # { ; "),
    ],
)
def test_strings_are_read_with_all_their_escapes_and_pieces(literal: str, name: str, tmp_path: Path) -> None:
    """A step that names no model of the bundle is told by its name."""
    files = {"config.pbtxt": step(literal), "a/config.pbtxt": "backend: 'python'", "a/1/model.py": "x"}
    found = shown(tmp_path, {**files, "b/config.pbtxt": "backend: 'python'", "b/1/model.py": "x"})
    assert name in found.refusal.partition(", and the models here")[0]


@pytest.mark.parametrize(("number", "read"), [("0x10", 16), ("017", 15), ("0", 0), ("4", 4)])
def test_numbers_are_read_in_three_bases(number: str, read: int, tmp_path: Path) -> None:
    """The batch size is told where the schema contradicts it."""
    schema = {"inputs": [{"name": "a", "datatype": "FP32", "shape": [10]}]}
    found = shown(tmp_path, {"config.pbtxt": f"max_batch_size: {number}", **MODEL}, schema=schema)
    assert (f"config.pbtxt has max_batch_size {read}" in found.refusal) if read else (config_of(found.configs["m"]).max_batch_size == 0)
