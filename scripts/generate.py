"""
Writes the tables and the state diagram of README.md from the code; with --check only compares.

A block stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))

from adapter.cli import settings_markdown  # noqa: E402 - works from any directory
from adapter.lifecycle.states import TRANSITIONS, State  # noqa: E402
from adapter.spi import status  # noqa: E402
from adapter.telemetry import metrics  # noqa: E402

README = TOP / "README.md"
BLOCK = re.compile(r"(<!-- generated: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def states_mermaid() -> str:
    """The transition table as a diagram."""
    rows = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.ABSENT.name}"]
    rows += [f"    {before.name} --> {after.name}: {event.value}" for (before, event), after in TRANSITIONS.items()]
    return "\n".join([*rows, "```"]) + "\n"


BLOCKS: dict[str, Callable[[], str]] = {
    "settings": settings_markdown,
    "errors": status.markdown,
    "metrics": metrics.markdown,
    "states": states_mermaid,
}


def rewritten(text: str) -> str:
    """The text with every block made anew. Raises SystemExit for a block that is unknown or missing."""
    found = [match[2] for match in BLOCK.finditer(text)]
    if wrong := sorted(set(found) ^ set(BLOCKS)):
        sys.exit(f"generate: README.md must have exactly the blocks {', '.join(BLOCKS)}; unknown or missing: {', '.join(wrong)}")
    return BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match[2]]()}{match[4]}", text)


def main() -> None:
    """Rewrite, or complain with --check."""
    parser = argparse.ArgumentParser(description="Write the generated blocks of README.md.")
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 when they are not current")
    is_check = parser.parse_args().check
    text = README.read_text()
    if (new := rewritten(text)) == text:
        return
    if is_check:
        sys.exit("generate: README.md is not current; run scripts/fix")
    README.write_text(new)


if __name__ == "__main__":
    main()
