"""A tree is a view of sorted paths, and answers as a tree of copies would."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from adapter.layout.tree import Tree, clash, is_residue, shown
from adapter.model import SourceFile

NAMES = st.sampled_from(["a", "b", "a.b", "a-", "a0", "A", "ä", ".cache", "__pycache__", "1", "config.pbtxt", "\udcff", "~"])
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=12, unique=True)


def a_tree(paths: list[str]) -> Tree:
    return Tree({path: SourceFile(path, 1, path) for path in paths})


def below(files: Mapping[str, SourceFile], name: str) -> dict[str, SourceFile]:
    return {path[len(name) + 1 :]: file for path, file in files.items() if path.startswith(f"{name}/")}


def same(tree: Tree, files: Mapping[str, SourceFile]) -> bool:
    """All that a tree can be asked, asked of its files."""
    assert dict(tree.files) == files
    assert bool(tree) == bool(files)
    assert tree.file_names == sorted(path for path in files if "/" not in path)
    assert tree.directory_names == sorted({path.partition("/")[0] for path in files if "/" in path})
    visible = {path: file for path, file in files.items() if not is_residue(path.partition("/")[0])}
    assert dict(tree.visible.files) == (visible or files)
    return True


@given(PATHS, st.lists(NAMES, max_size=3), NAMES)
def test_a_view_is_what_copies_were(paths, entered, hidden):
    """Step into directories, leave out files and directories, in any order."""
    tree = a_tree(paths)
    files = dict(tree.files)
    assert same(tree, files)
    for name in entered:
        tree = tree.without(hidden)
        files = {path: file for path, file in files.items() if path.partition("/")[0] != hidden}
        assert same(tree, files)
        tree, files = tree.below(name), below(files, name)
        assert same(tree, files)


@given(PATHS)
def test_a_clash_is_a_file_that_is_a_directory_too(paths):
    """Found in one pass, whatever lies between the two."""
    clashes = {path for path in paths if any(other.startswith(f"{path}/") for other in paths)}

    found = clash(paths)

    assert found in clashes if clashes else found is None


def test_a_text_shows_few_of_many_paths():
    """In their order, the others counted."""
    assert shown(f"{number:06d}" for number in range(100_000)).endswith("000011 and 99988 more")
