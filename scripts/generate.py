"""
Writes the tables and the state diagram of the documents from the code; with --check only compares.

A block stands between `<!-- generated: NAME -->` and `<!-- end -->`, once, in the file that `BLOCKS` names.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))

from adapter.lifecycle.states import MOVES, State  # noqa: E402
from tests import minutes, tables  # noqa: E402
from tests.benchmark import page  # noqa: E402
from tests.observability.files import alerts  # noqa: E402
from tests.prove import report  # noqa: E402
from tests.prove.net import page as net  # noqa: E402

BLOCK = re.compile(r"(<!-- generated: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def states_mermaid() -> str:
    """The transition table as a diagram."""
    rows = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.ABSENT.name}"]
    rows += [f"    {before.name} --> {after.name}: {what}" for (before, after), what in MOVES.items()]
    return "\n".join([*rows, "```"]) + "\n"


def alerts_markdown() -> str:
    """The chart's alerts: name, severity, how long it must hold, what has happened, and the section that says what to do."""
    rows = ["| alert | severity | after | what has happened | read |", "|---|---|---|---|---|"]
    for rule in alerts():
        words, (_, anchor) = rule["annotations"]["summary"], rule["annotations"]["runbook_url"].split("#")
        words = words.replace("{{ $labels.namespace }}/{{ $labels.pod }}", "a pod").replace("{{ $labels.namespace }}", "a namespace")
        words = re.sub(r"\{\{ \$value [^}]*\}\}", "…", re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"`\1`", words))
        link = f"[{anchor.replace('-', ' ').capitalize().replace('triton', 'Triton')}](operations.md#{anchor})"
        rows.append(f"| `{rule['alert']}` | {rule['labels']['severity']} | {rule.get('for', 'at once')} | {words} | {link} |")
    return "\n".join(rows) + "\n"


def memory_markdown() -> str:
    """What the last `scripts/prove memory` has found."""
    proof = report.read(TOP / "tests" / "prove" / "record.json")["memory"]
    lines = [textwrap.fill(f"- {note}.", 120, subsequent_indent="  ") for note in proof.notes]
    return "\n".join([*lines, "", f"Recorded on {proof.date} at commit `{proof.commit}` by `scripts/prove memory`."]) + "\n"


BLOCKS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "README.md": {"states": states_mermaid},
    "deploy/docs/models.md": {"parameters": tables.parameters_markdown},
    "deploy/docs/settings.md": {"settings": tables.settings_markdown},
    "deploy/docs/observability.md": {"alerts": alerts_markdown},
    "deploy/docs/calls.md": {"errors": tables.errors_markdown, "metrics": tables.metrics_markdown},
    "deploy/docs/sizing.md": {"memory": memory_markdown},
    "deploy/docs/performance.md": page.blocks(),
    "tests/README.md": {"minutes": minutes.markdown},
    "tests/prove/net/README.md": {"mistakes": net.markdown},
}
"""File → the blocks that it holds."""


def rewritten(name: str, text: str) -> str:
    """The text of one file with every block made anew. Raises SystemExit for a block that is unknown, missing or there twice."""
    makers = BLOCKS[name]
    found = sorted(match[2] for match in BLOCK.finditer(text))
    if found != sorted(makers):
        sys.exit(f"generate: {name} must have exactly the blocks {', '.join(sorted(makers))}; it has {', '.join(found) or 'no block'}")
    return BLOCK.sub(lambda match: f"{match[1]}{makers[match[2]]()}{match[4]}", text)


def main(top: Path = TOP) -> None:
    """Rewrite the files below `top`, or complain with --check."""
    parser = argparse.ArgumentParser(description="Write the generated blocks of the documents.")
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 when a file is not current")
    is_check = parser.parse_args().check
    old = {name: (top / name).read_text() for name in BLOCKS}
    stale = {name: new for name, text in old.items() if (new := rewritten(name, text)) != text}
    if is_check and stale:
        sys.exit(f"generate: {', '.join(stale)}: not current; run scripts/fix")
    for name, text in stale.items():
        (top / name).write_text(text)


if __name__ == "__main__":
    main()
