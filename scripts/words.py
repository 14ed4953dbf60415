"""
Finds words that are not plain technical English; with --check fails where there are any.

Looks at what git tracks: names, comments, docstrings and texts of Python files, and the prose of pages and templates.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
WORDS = re.compile(
    r"\b(?<!\w\.)(rooms?|doors?|houses?|floors?|lanes?|shelf|shelves|beds?|walks?|whoever|nobody|somebody|so many|(?<!in[ -])flights?)\b",
    re.I,
)
"""`in flight` is a term of the field; `os.walk` and `math.floor` are not ours."""
NAMES = re.compile(r"(?:^|_)((?i:rooms?|doors?|houses?|lanes?|shelf|shelves|beds?)|whoever|nobodys?|somebody|so_many)(?=_|$)")
"""In names: `pycurl.NOBODY` is not ours."""
ALLOWED = re.compile(r"the volume has no room|makes room for")
"""Error texts that users quote."""
PROSE = (".md", ".tpl", ".txt", ".yaml", ".yml", ".sh", "")
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.M | re.S)
OURS = ("scripts/words.py", "scripts/constraints.txt", "LICENSE")


def words(text: str) -> Iterator[re.Match[str]]:
    """Those of a text, at their place in it."""
    return WORDS.finditer(ALLOWED.sub(lambda quoted: " " * len(quoted[0]), text.replace("_", " ")))


def found(path: Path) -> Iterator[tuple[int, str]]:
    """Line and word."""
    for word in NAMES.findall(path.stem):
        yield 0, word
    text = (TOP / path).read_text(errors="replace")
    if path.suffix != ".py":
        blanked = CODE.sub(lambda code: "\n" * code[0].count("\n"), text) if path.suffix == ".md" else text
        yield from ((blanked.count("\n", 0, match.start()) + 1, match[0]) for match in words(blanked))
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from ((token.start[0], match[0]) for match in words(token.string))
        elif token.type == tokenize.NAME:
            yield from ((token.start[0], word) for word in NAMES.findall(token.string))


def main() -> None:
    """List them; with --check fail where there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0].strip())
    parser.add_argument("folder", nargs="?", default="", help="only there")
    parser.add_argument("--check", action="store_true", help="fail where there are any")
    given = parser.parse_args()
    names = subprocess.run(["git", "ls-files", "-z", given.folder or "."], cwd=TOP, capture_output=True, text=True, check=True).stdout
    paths = [Path(name) for name in names.split("\0") if name and name not in OURS and (TOP / name).is_file()]
    hits = [f"{path}:{line}: {word}" for path in paths if path.suffix in (".py", *PROSE) for line, word in found(path)]
    if hits:
        print("\n".join(hits))
    if given.check and hits:
        sys.exit("words: those above are not plain technical English")


if __name__ == "__main__":
    main()
