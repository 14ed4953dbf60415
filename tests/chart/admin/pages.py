"""
The commands of the pages in `deploy/docs`: a block in `bash` is run as it stands, a block in `text` below it is what it prints.

In what is printed, `…` stands for what differs from one cluster to the next, and a line `…` for any lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.real.children import TOP

PAGES = TOP / "deploy" / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A block of commands and what it prints, if the page says so."""

    page: str
    heading: str
    script: str
    prints: str

    def said_by(self, output: str) -> bool:
        """Whether these lines are among the output, in this order."""
        lines = (r"(?:.*\n)*?" if line.strip() == "…" else f"{_pattern(line)}\n" for line in self.prints.splitlines())
        return re.search(rf"(?:^|\n){''.join(lines)}", f"{output.rstrip()}\n") is not None


def steps(page: str) -> list[Step]:
    """All blocks of commands of a page, in their order."""
    text = (PAGES / page).read_text()
    blocks = list(BLOCK.finditer(text))
    headings = [match for match in HEADING.finditer(text) if not any(block.start() < match.start() < block.end() for block in blocks)]
    found = []
    for number, block in enumerate(blocks):
        if block[1] == "bash":
            following = blocks[number + 1] if number + 1 < len(blocks) else None
            heading = [match[1] for match in headings if match.start() < block.start()][-1]
            found.append(Step(page, heading, block[2], following[2] if following and following[1] == "text" else ""))
    return found


def _pattern(line: str) -> str:
    """Blanks of a table may be more or fewer."""
    words = (".*".join(re.escape(part) for part in word.split("…")) for word in line.split())
    return r"[ \t]+".join(words) + r"[ \t]*"
