"""Triton's words of any kind become one line of bounded length, with the cause first."""

from __future__ import annotations

from hypothesis import strategies as st

from adapter.triton.reason import LONGEST, one_line, reason_of_refusal
from tests.fuzz.fuzzing import fuzzed, texts

PARTS = [
    "load failed for model 'm': ", "version 1 is at UNAVAILABLE state: ", "version -9 is at LOADING state: ", "Internal: ",
    "Invalid argument: ", "Unsupported:", "\n\nAt:\n", "  /models/m/1/model.py(12): initialize\n", "Traceback (most recent call last):\n",
    '  File "/models/m/1/model.py", line 3, in initialize\n', "    raise ValueError('x')\n", "    ^^^^^\n", "ValueError: no weights\n",
    "During handling of the above exception, another exception occurred:\n", "Stub process 'm_0' is not healthy", ";", "\n", "(", ")", ": ",
    "failed to poll from model repository", "version ", "x" * 3500, "at least one version must be available under the version policy",
]  # fmt: skip
words = st.lists(st.sampled_from(PARTS) | texts, max_size=12).map("".join)


def check(line: str) -> None:
    """One line, never empty."""
    assert line.strip() == line != ""
    assert len(line.splitlines()) == 1 and "\n" not in line


@fuzzed(text=words)
def test_any_reason_is_one_line(text: str) -> None:
    line = one_line(text)
    check(line)
    assert len(line) <= LONGEST


@fuzzed(text=words, model_id=texts)
def test_any_refusal_is_one_line_and_says_each_cause_once(text: str, model_id: str) -> None:
    line = reason_of_refusal(model_id, text)
    check(line)
    assert len(line) <= 2 * LONGEST, len(line)
