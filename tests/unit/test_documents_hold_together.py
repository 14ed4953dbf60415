"""Every Markdown file: links and names lead somewhere, code blocks name their language, lines fit; and the maps stay maps."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
FOLDERS = ("adapter", "deploy", "proto", "scripts", "tests")
DOCUMENTS = sorted(
    {*TOP.glob("*.md"), *(path for folder in FOLDERS for path in (TOP / folder).rglob("*.md"))} - {TOP / "tests/prove/record.md"}
)
MAX_COLUMNS = 120
MAX_LINES = {"README.md": 130, "deploy/README.md": 90, "deploy/docs/troubleshooting.md": 150}

FENCE = re.compile(r"\s*(```+|~~~+)(.*)")
CODE = re.compile(r"(`+)[^`].*?\1")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`([^`]+)`")
OF_THE_TOP = re.compile(rf"(?:{'|'.join(FOLDERS)}|\.ci)/[\w./-]*")
"""A path from the top of the repository, in every document."""
RUN_BY = {
    "README.md": "tests/verbs/test_load_and_unload.py",
    "deploy/compose/README.md": "tests/image/test_compose_runs_without_docker.py",
    "deploy/manifests/README.md": "tests/chart/admin/test_plain_manifests_reach_an_api_server.py",
    **{f"deploy/docs/{page}.md": "tests/fronts/test_pages_work_when_pasted.py" for page in ("lmi", "openai", "sagemaker", "v2-rest")},
    **{
        f"deploy/docs/{page}.md": "tests/chart/admin/test_every_command_of_the_pages_is_run.py"
        for page in ("drop-in-image", "install", "replace", "uninstall", "upgrade")
    },
}
"""Page → the test that runs its blocks in `bash`; blocks in `shell` are run by none."""
COMMANDS = re.compile(r"^```(?:bash|shell|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IN_COMMANDS = re.compile(rf"(?<![\w/.-])(?:\.\./)*((?:{'|'.join(FOLDERS)}|\.ci)/[\w./-]*\w)")
OF_A_MAP = re.compile(r"\w[\w-]*(?:/[\w.-]+)*(?:\.py|/)")
"""A module or a folder, in a document that maps the folder where it lies."""
MAPS = tuple(TOP / folder / "README.md" for folder in ("adapter", "tests"))
FACTS = TOP / "adapter" / "triton" / "README.md"
OBSERVED = re.compile(r"\[(\w+):\s+(\w+)\]")
"""The file and the name of a test of `tests/contract/server`, both without `test_`."""

document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(TOP)))


def parted(path: Path) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Numbered lines of prose, and numbered fences that open a code block, each with what follows the fence."""
    prose, opened = [], []
    fence = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = FENCE.fullmatch(line)
        if fence:
            if match and match[1] == fence and not match[2].strip():
                fence = ""
        elif match:
            fence = match[1]
            opened.append((number, match[2].strip()))
        else:
            prose.append((number, line))
    assert not fence, "a code block is not closed"
    return prose, opened


def anchors(path: Path) -> set[str]:
    """The names that GitHub gives to the headings of a file."""
    seen: Counter[str] = Counter()
    found = set()
    for _, line in parted(path)[0]:
        if line.startswith("#"):
            name = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
            found.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
    return found


def is_stale(path: Path, word: str) -> bool:
    """Whether a word in backticks looks like a path of the repository, and there is no such file or folder."""
    if OF_THE_TOP.fullmatch(word):
        return not any((folder / word).exists() for folder in (TOP, path.parent))
    return path in MAPS and OF_A_MAP.fullmatch(word) is not None and not (path.parent / word).exists()


def broken(path: Path, link: str) -> bool:
    """Whether a link leads nowhere. Links to other sites are not asked."""
    if "://" in link or link.startswith("mailto:"):
        return False
    target, _, anchor = link.partition("#")
    file = path.parent / target if target else path
    return not file.exists() or (bool(anchor) and anchor not in anchors(file))


@document
def test_every_link_leads_somewhere(path: Path) -> None:
    prose, _ = parted(path)

    links = LINK.findall("\n".join(CODE.sub("", line) for _, line in prose))

    assert [link for link in links if broken(path, link)] == []


@document
def test_every_file_that_is_named_exists(path: Path) -> None:
    prose, _ = parted(path)

    words = [(number, word) for number, line in prose for quoted in QUOTED.findall(line) for word in quoted.split()]

    assert [(number, word) for number, word in words if is_stale(path, word)] == []


def test_every_file_of_a_command_exists() -> None:
    blocks = [(path, block) for path in DOCUMENTS for block in COMMANDS.findall(path.read_text())]

    named = [(path, word) for path, block in blocks for word in IN_COMMANDS.findall(block)]

    assert len(named) > 30
    assert [(str(path), word) for path, word in named if not (TOP / word).exists()] == []


def test_every_block_in_bash_is_run_by_a_test() -> None:
    found = {str(path.relative_to(TOP)): {language for _, language in parted(path)[1]} for path in DOCUMENTS}

    assert {name for name, languages in found.items() if "bash" in languages} == set(RUN_BY)
    assert [name for name, languages in found.items() if "sh" in languages] == []
    assert [name for name, test in RUN_BY.items() if Path(name).stem not in (TOP / test).read_text()] == []


def test_every_observation_of_triton_names_a_test() -> None:
    observed = OBSERVED.findall(FACTS.read_text())

    tests = {file: (TOP / f"tests/contract/server/test_{file}.py").read_text() for file, _ in observed}

    assert observed
    assert [f"{file}: {name}" for file, name in observed if f"def test_{name}(" not in tests[file]] == []


def test_log_events_of_the_code_are_those_that_are_explained() -> None:
    """Operators search logs for them."""
    pages = "\n".join(page.read_text() for page in (TOP / "deploy/docs").glob("*.md"))
    tables = re.findall(r"^\| log event .*\n((?:\|.*\n)+)", pages, re.MULTILINE)
    explained = [word for table in tables for row in table.splitlines() for word in QUOTED.findall(row.split("|")[1])]

    code = "".join(path.read_text() for path in (TOP / "adapter").rglob("*.py"))
    written = re.findall(r'log\.(?:debug|info|warning|error|exception)\(\s*"(\w+\.\w+)"', code)

    assert len(explained) > len(tables) > 3
    assert [event for event in written if f"`{event}`" not in pages] == []
    assert [event for event in explained if f'"{event}"' not in code] == []


@document
def test_every_code_block_names_its_language(path: Path) -> None:
    _, opened = parted(path)

    assert [number for number, language in opened if not language] == []


@document
def test_no_line_is_too_long(path: Path) -> None:
    """Tables and code cannot be wrapped."""
    prose, _ = parted(path)

    assert [number for number, line in prose if len(line) > MAX_COLUMNS and not line.startswith("|")] == []


@pytest.mark.parametrize(("page", "lines"), MAX_LINES.items())
def test_a_map_stays_a_map(page: str, lines: int) -> None:
    """Longer texts have a document of their own."""
    assert len((TOP / page).read_text().splitlines()) <= lines


def test_the_map_of_deploy_has_every_page() -> None:
    links = LINK.findall((TOP / "deploy" / "README.md").read_text())

    pages = {str(path.relative_to(TOP / "deploy")) for path in (TOP / "deploy").rglob("*.md")} - {"README.md"}
    assert sorted(pages - {link.partition("#")[0] for link in links}) == []
