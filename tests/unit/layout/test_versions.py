"""Which directory names are versions, and which versions a policy serves."""

from __future__ import annotations

import pytest

from adapter.layout.versions import VersionPolicy, is_odd, is_version


@pytest.mark.parametrize("name", ["0", "1", "9", "10", "2024", "999999999999999999", "1000000000000000000", "9223372036854775807"])
def test_plain_numbers_are_versions(name):
    """Zero included, up to the largest number of 64 bits."""
    assert is_version(name)
    assert not is_odd(name)


@pytest.mark.parametrize(
    "name",
    [
        "00",
        "01",
        "007",
        "-1",
        "+1",
        "-0",
        " 1",
        "1 ",
        "1abc",
        "1_old",
        "1.5",
        "0x1",
        "9223372036854775808",
        "9" * 19,
        "9" * 20,
        "١",
        "²",
        "①",
        "１",
        "\t3",
    ],
)
def test_what_stoll_would_read_otherwise_is_odd(name):
    """Triton misreads, ignores or dies of these."""
    assert not is_version(name)
    assert is_odd(name)


@pytest.mark.parametrize("name", ["", "v1", "assets", ".cache", "-", "+", "--1", "_1", "model.savedmodel", "a1", " ", "½"])
def test_other_names_are_just_directories(name):
    """Triton logs them and goes on."""
    assert not is_version(name)
    assert not is_odd(name)


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        (VersionPolicy(), ("10",)),
        (VersionPolicy(latest=2), ("10", "9")),
        (VersionPolicy(latest=9), ("10", "9", "0")),
        (VersionPolicy(latest=0), ()),
        (VersionPolicy(latest=None), ("10", "9", "0")),
        (VersionPolicy(latest=None, specific=(0, 9, 4)), ("9", "0")),
        (VersionPolicy(latest=None, specific=()), ()),
    ],
)
def test_a_policy_serves_as_triton_does(policy, served):
    """Highest first; a specific version that is absent is passed over."""
    assert policy.served(["9", "0", "10"]) == served


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (VersionPolicy(latest=3), "the latest 3"),
        (VersionPolicy(latest=None), "all versions"),
        (VersionPolicy(latest=None, specific=(4, 2)), "specific versions 4, 2"),
        (VersionPolicy(latest=None, specific=()), "specific versions (none)"),
    ],
)
def test_a_policy_can_be_read_in_an_error_text(policy, words):
    """In words, not in fields."""
    assert str(policy) == words
