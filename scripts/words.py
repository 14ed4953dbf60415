"""
Finds words that are not plain technical English; with --check fails where a package has more of them than it is allowed.

Looks at what git tracks: names, comments, docstrings and texts of Python files, and the prose of pages and templates. The
packages that still have such words, and how many, are in words.txt. That list only shrinks: --write lowers its numbers.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
ALLOWED = Path(__file__).with_name("words.txt")
WORDS = re.compile(
    r"\b(rooms?|doors?|houses?|floors?|lanes?|shelf|shelves|beds?|walks?|whoever|nobody|somebody|so[ _]many|(?<!in[ _])flights?)\b", re.I
)
"""`in flight` is a term of the field."""
NAMES = re.compile(r"(?:^|_)(rooms?|doors?|houses?|lanes?|shelf|shelves|beds?)(?=_|$)", re.I)
"""In names: `os.walk` and `math.floor` are not ours."""
PROSE = (".md", ".tpl", ".txt", ".yaml", ".yml", ".sh", "")
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.M | re.S)
OURS = ("scripts/words.py", "scripts/words.txt", "scripts/constraints.txt", "LICENSE")
QUOTES = ("tests/prove/net/", "tests/prove/record.")
"""Planted mistakes and the record of a run quote the product and its tests, where the words are counted already."""


def package(path: Path) -> str:
    """What a number in the list is for: two folders deep, or a file of the top."""
    parts = path.parts
    return "/".join(parts[: min(2, len(parts) - 1)]) or path.name


def found(path: Path) -> Iterator[tuple[int, str]]:
    """Line and word."""
    for word in NAMES.findall(path.stem):
        yield 0, word
    text = (TOP / path).read_text(errors="replace")
    if path.suffix != ".py":
        blanked = CODE.sub(lambda code: "\n" * code[0].count("\n"), text) if path.suffix == ".md" else text
        yield from ((blanked.count("\n", 0, match.start()) + 1, match[0]) for match in WORDS.finditer(blanked))
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from ((token.start[0], match[0]) for match in WORDS.finditer(token.string.replace("_", " ")))
        elif token.type == tokenize.NAME:
            yield from ((token.start[0], word) for word in NAMES.findall(token.string))


def main() -> None:
    """List them, compare their numbers with the list, or lower the numbers of the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0].strip())
    parser.add_argument("folder", nargs="?", default="", help="only there")
    parser.add_argument("--check", action="store_true", help="compare with the list only")
    parser.add_argument("--write", action="store_true", help="lower the numbers of the list")
    given = parser.parse_args()
    names = subprocess.run(["git", "ls-files", "-z", given.folder or "."], cwd=TOP, capture_output=True, text=True, check=True).stdout
    paths = [
        Path(name) for name in names.split("\0") if name and name not in OURS and not name.startswith(QUOTES) and (TOP / name).is_file()
    ]
    hits = [(path, *hit) for path in paths if path.suffix in (".py", *PROSE) for hit in found(path)]
    counts = Counter(package(path) for path, _, _ in hits)
    allowed = dict(line.rsplit(" ", 1) for line in ALLOWED.read_text().splitlines()) if ALLOWED.exists() else {}
    if not given.check and not given.write:
        print("\n".join(f"{path}:{line}: {word}" for path, line, word in hits))
    if given.write:
        kept = {name: min(counts[name], int(most)) for name, most in allowed.items()} if ALLOWED.exists() else counts
        ALLOWED.write_text("".join(f"{name} {kept[name]}\n" for name in sorted(kept) if kept[name]))
    if given.check:
        over = [
            f"{name}: {count}, allowed are {allowed.get(name, 0)}" for name, count in counts.items() if count > int(allowed.get(name, 0))
        ]
        over += [f"{name}: has none any more; run scripts/fix" for name in allowed if not counts[name]]
        if over:
            sys.exit("words: " + "\nwords: ".join([*over, "python scripts/words.py FOLDER lists them"]))


if __name__ == "__main__":
    main()
