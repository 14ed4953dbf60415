"""config.pbtxt: the name goes, everything else stays; mistakes are refused with line and column."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InvalidModel
from adapter.layout import model_config
from adapter.layout.schema import Schema, Tensor
from adapter.layout.versions import VersionPolicy
from tests.unit.layout.cases.builders import config_from, config_of

FUTURE = """\
# served since 2031
name: "old"   # not ours to choose
backend: "onnxruntime"
some_future_field { enable: true  level: [ 1, 2 ] }
response_cache { enable: true }
[nvidia.next]: { a: 'b' }
input [
  {
    name: "x"  # the only one
    data_type: TYPE_BF16
    dims: [ -1, 3 ]
    optional: true
  }
]
"""

names = st.text(st.characters(codec="utf-8"), max_size=8)
tensors = st.fixed_dictionaries(
    {"name": names, "data_type": st.sampled_from(["TYPE_FP32", "TYPE_STRING"]), "dims": st.lists(st.integers(-1, 2**40), max_size=3)}
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "platform": names,
        "backend": names,
        "max_batch_size": st.integers(0, 64),
        "input": st.lists(tensors, max_size=2),
        "output": st.lists(tensors, max_size=2),
        "instance_group": st.lists(st.fixed_dictionaries({"count": st.integers(1, 4), "kind": st.just("KIND_CPU")}), max_size=2),
        "parameters": st.dictionaries(names, st.fixed_dictionaries({"string_value": names}), max_size=2),
        "version_policy": st.sampled_from([{"latest": {"num_versions": 2}}, {"all": {}}, {"specific": {"versions": [1, 5]}}]),
        "dynamic_batching": st.just({"preferred_batch_size": [4, 8], "max_queue_delay_microseconds": 100}),
        "response_cache": st.just({"enable": True}),
    },
)


def rewritten(text: str) -> str:
    return model_config.read(text.encode()).rewritten(None).decode()


def refusal(content: bytes | str) -> str:
    with pytest.raises(InvalidModel) as caught:
        model_config.read(content.encode() if isinstance(content, str) else content)
    return caught.value.text


def test_everything_but_the_name_survives():
    """Unknown fields, comments and formatting stay as their author wrote them."""
    assert rewritten(FUTURE) == FUTURE.replace('name: "old"   #', "   #")


def test_the_peers_own_case_loses_its_name_only():
    """Source: its test removeNameFromConfig."""
    text = (
        'platform: "bogus"\nname: "REMOVE_ME"\nmax_batch_size: 1\n'
        'input [ { name: "INPUT__0" data_type: TYPE_UINT8 dims: [1, 28, 28] } ]\n'
        'output [ { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [10] } ]\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n'
    )

    assert rewritten(text) == text.replace('name: "REMOVE_ME"\n', "")


@given(
    fields,
    names,
    st.sampled_from(["name: {}\n", "name : {} ;", "# about\nname: '' {} # why\n", "name:\n{},"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_the_rewritten_config_is_equal_except_for_the_name(known, name, form, one_line, pointy, name_first):
    """Whatever the config holds and however it is written, Triton's own parser reads the same message without name."""
    message = config_from(known)
    body = text_format.MessageToString(message, as_one_line=one_line, pointy_brackets=pointy, as_utf8=True)
    header = form.replace("{}", '"' + text_format.text_encoding.CEscape(name.encode(), as_utf8=True) + '"')
    text = f"{header}{body}\n" if name_first else f"{body}\n{header}"

    assert config_of(rewritten(text)) == message


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("", ""),
        ("\n# nothing\n", "\n# nothing\n"),
        ('name: ""', ""),
        ('name: "x" backend: "y"', ' backend: "y"'),
        ("input { name: 'x' }\n", "input { name: 'x' }\n"),
        ("parameters { key: 'name' value { string_value: 'x' } }", "parameters { key: 'name' value { string_value: 'x' } }"),
        ('\ufeffname: "x"\nbackend: "y"', 'backend: "y"'),
    ],
)
def test_only_the_models_own_name_goes(text, left):
    """An empty file and a byte order mark are legal."""
    assert rewritten(text) == left


def test_what_is_not_utf_8_in_comments_and_in_unknown_fields_stays_as_it_is():
    """Triton reads past it."""
    content = b"# caf\xe9 \xff\xfe\nname: 'x' # \xe9\nnext: 'caf\xe9'\nbackend: 'caf\xc3\xa9'"

    found = model_config.read(content)

    assert found.backend == "café"
    assert found.rewritten(Schema(inputs=(Tensor("é", "TYPE_FP32", (1,)),))) == (
        content.replace(b"name: 'x'", b"") + '\ninput {\n  name: "é"\n  data_type: TYPE_FP32\n  dims: [ 1 ]\n}\n'.encode()
    )


@pytest.mark.parametrize("text", ["max_batch_size: 0 max_batch_size: 4", "max_batch_size: 4", "backend: '' backend: 'b' max_batch_size: 4"])
def test_the_last_value_counts_where_the_first_was_the_default(text):
    """Protobuf takes such a config, and cannot see that a default was set."""
    assert model_config.read(text.encode()).max_batch_size == config_of(text).max_batch_size == 4
    assert model_config.read(text.encode()).backend == config_of(text).backend


def test_what_the_layout_needs_is_read():
    """Defaults are those of an absent file."""
    config = model_config.read(b"backend: 'python' platform: 'p' default_model_filename: 'm' 'ain.py' max_batch_size: 0x10")

    assert (config.backend, config.platform, config.default_model_filename, config.max_batch_size) == ("python", "p", "main.py", 16)
    assert config.version_policy == VersionPolicy(latest=1)
    assert not config.is_ensemble
    assert model_config.read(b"").version_policy == model_config.ModelConfig().version_policy


@pytest.mark.parametrize("text", ["platform: 'ensemble'", "ensemble_scheduling { }", "ensemble_scheduling: < step { model_name: 'a' } >"])
def test_an_ensemble_is_known_by_platform_or_scheduling(text):
    """Either way Triton loads nothing from its version directory."""
    assert model_config.read(text.encode()).is_ensemble


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("version_policy { latest { num_versions: 3 } }", VersionPolicy(latest=3)),
        ("version_policy: { latest: {} }", VersionPolicy(latest=0)),
        ("version_policy { all { } }", VersionPolicy(latest=None)),
        ("version_policy { }", VersionPolicy(latest=None)),
        ("version_policy { specific { versions: 1 versions: [ 3, 5 ] } }", VersionPolicy(latest=None, specific=(1, 3, 5))),
        ("version_policy { specific { } }", VersionPolicy(latest=None, specific=())),
        ("version_policy { some_future_policy { } }", VersionPolicy(latest=None)),
    ],
)
def test_the_version_policy_is_read(text, policy):
    """As Triton understands it."""
    assert model_config.read(text.encode()).version_policy == policy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("backend: 'x'\n  name: 7", "line 2, column 9: name must be a string in quotes"),
        ("name: x", "line 1, column 7: name must be a string"),
        ("name: ['x']", "line 1, column 7: name has one value, and this is a list"),
        ("name { a: 1 }", "line 1, column 6: name must be a string"),
        ("backend: python", "line 1, column 10: backend must be a string"),
        ("platform: { }", "platform must be a string"),
        ("default_model_filename: 1", "default_model_filename must be a string"),
        ("runtime: 1", "runtime must be a string"),
        ("max_batch_size: '4'", "max_batch_size must be a whole number"),
        ("max_batch_size: 1.5", "max_batch_size must be a whole number"),
        ("max_batch_size: [1]", "max_batch_size has one value, and this is a list"),
        ("max_batch_size: -1", "max_batch_size is -1, 0 or more is expected"),
        ("max_batch_size: 2147483648", "max_batch_size must be from -2147483648 to 2147483647"),
        ("version_policy: 3", "version_policy must be a message in braces"),
        ("version_policy [ { } ]", "version_policy has one value, and this is a list"),
        ("version_policy { latest: 3 }", "latest must be a message in braces"),
        ("version_policy { latest { num_versions: 'x' } }", "num_versions must be a whole number"),
        ("version_policy { specific { versions: [1, x] } }", "versions must be a whole number"),
        ("version_policy { specific { versions { } } }", "versions must be a whole number"),
        ("version_policy { all { } latest { } }", "latest and all are set, and only one of them can be"),
        ("ensemble_scheduling: true", "ensemble_scheduling must be a message in braces"),
        ("input: 'x'", "input must be a message in braces, or a list of them"),
        ("output: [ { }, 1 ]", "output must be a message in braces, or a list of them"),
        ("instance_group: KIND_CPU", "instance_group must be a message in braces, or a list of them"),
        ("name: 'a'\nname: 'a'", "line 2, column 1: name is set twice"),
        ("backend: 'a'\nbackend: 'b'", "line 2, column 1: backend is set twice"),
    ],
)
def test_a_known_field_of_the_wrong_kind_is_refused_with_its_place(text, words):
    """Triton would only say "failed to poll from model repository"."""
    found = refusal(text)

    assert found.startswith("config.pbtxt cannot be used: line ")
    assert words in found


def test_text_that_is_no_config_is_refused_with_its_place():
    """Not parsable, a string that is not UTF-8, too long."""
    assert refusal('backend: "x"\nname "y"') == "config.pbtxt cannot be parsed: line 2, column 6: expected ':', found '\"y\"'"
    assert refusal(b"a: 1\nbackend: 'caf\xe9'") == "config.pbtxt cannot be used: line 2, column 10: backend is not UTF-8"
    assert refusal(b"a: 1\nb\xe9: 1") == r"config.pbtxt cannot be parsed: line 2, column 2: the byte 0xE9 cannot stand here"
    assert refusal(b"PK\x03\x04\x00\x00").startswith("config.pbtxt cannot be parsed: line 1, column 3")
    assert "more than 1048576" in refusal(b"#" * (1024 * 1024 + 1))
