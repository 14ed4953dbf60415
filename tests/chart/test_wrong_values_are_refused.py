"""Each file of `refused/`: Helm ends with the words of its first lines, before anything is in the cluster."""

from __future__ import annotations

import functools
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chart import matrix, render

CHECKS = render.CHART / "templates" / "_checks.tpl"
SCHEMA = render.CHART / "values.schema.json"


def refusal(case: matrix.Case) -> list[str]:
    """Its lines; none if Helm takes the file."""
    try:
        case.objects()
    except render.RenderError as refused:
        return str(refused).splitlines()
    return []


@functools.cache
def refusals() -> dict[str, list[str]]:
    """Of all files, by their names."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip([case.name for case in matrix.refused()], pool.map(refusal, matrix.refused()), strict=True))


@pytest.mark.parametrize("case", matrix.refused(), ids=lambda case: case.name)
def test_the_mistake_is_named(case: matrix.Case) -> None:
    """` … ` joins words that one line has in any order."""
    lines, told = refusals()[case.name], [words.split(" … ") for words in case.told("refused")]

    assert told
    assert [words for words in told if not any(all(word in line for word in words) for line in lines)] == [], lines
    assert [line for line in lines if not any(all(word in line for word in words) for words in told)] == []
    assert "secret-word" not in str(lines)


def test_every_check_of_the_templates_refuses_a_file() -> None:
    """A line of `_checks.tpl` that is no action is a refusal."""
    said = [line for lines in refusals().values() for line in lines]
    checks = re.sub(r"{{-?\s*/\*.*?\*/\s*-?}}", "", CHECKS.read_text(), flags=re.DOTALL)
    checks = re.sub(r"{{-?\s*(?:\$\w+ :?=|(?:with|if|range|else|end|define|fail)\b).*?}}", "", checks, flags=re.DOTALL)
    patterns = [".*".join(map(re.escape, re.split(r"{{.*?}}", line))) for line in map(str.strip, checks.splitlines()) if line]

    assert len(patterns) > 10
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, line) for line in said)] == []


def test_a_value_that_went_is_refused_with_what_replaces_it() -> None:
    said = "\n".join(line for lines in refusals().values() for line in lines).replace("\\'", "'")
    sentences = set(re.findall(r'"const": "(.*?)"', SCHEMA.read_text()))

    assert len(sentences) > 40
    assert {sentence for sentence in sentences if f"value must be '{sentence}'" not in said} == set()
