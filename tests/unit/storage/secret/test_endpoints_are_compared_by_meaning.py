"""Whether two endpoints are one: credentials follow this answer."""

from __future__ import annotations

import pytest

from adapter.storage.secret.fields import is_same_endpoint

SAME = [
    ("http://h", "http://h/", True), ("http://h:80", "http://h", True), ("https://h:443/", "https://H", True), ("h", "https://h", True),
    ("", None, True), (" http://h ", "http://h", True),
    ("http://h", "https://h", False), ("http://h", "http://h:81", False), ("http://h", "http://h/x", False), ("http://h", None, False),
    ("", "http://h", False), ("http://a@h", "http://h", False), ("http://h", "http://h.evil", False), ("http://[", "http://[", False),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "expected"), SAME)
def test_endpoints_are_compared_by_meaning(one, other, expected):
    """Credentials follow this answer, so a doubt is a no."""
    assert is_same_endpoint(one, other) is expected
    assert is_same_endpoint(other, one) is expected
