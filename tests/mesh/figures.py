"""Counts and durations of a run, as one line a second and as a table."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

KEPT = 20_000
MOST_REASONS = 8
REASON_COLUMNS = 110


@dataclass
class FaultRow:
    """One kind of fault."""

    times: int = 0
    tried: int = 0
    """Models that were called loaded when it came, and that were not unloaded since."""
    survived: int = 0
    slowest: float = 0.0
    """Seconds from the end of the fault to the last of their answers."""

    @property
    def lost(self) -> int:
        """They never answered again."""
        return self.tried - self.survived


@dataclass
class Figures:
    """What is printed."""

    counts: Counter[str] = field(default_factory=Counter)
    """Events that are no call."""
    ok: Counter[str] = field(default_factory=Counter)
    """Kind of call → successes."""
    not_ok: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, deque[float]] = field(default_factory=dict)
    """Kind of call → durations of its last successes."""
    reasons: dict[str, Counter[str]] = field(default_factory=dict)
    """Kind of call → why it failed."""
    faults: dict[str, FaultRow] = field(default_factory=dict)

    def count(self, what: str) -> None:
        """One more."""
        self.counts[what] += 1

    def took(self, kind: str, seconds: float) -> None:
        """A call of this kind has succeeded."""
        self.ok[kind] += 1
        self.seconds.setdefault(kind, deque(maxlen=KEPT)).append(seconds)

    def percentile(self, kind: str, share: float) -> float | None:
        """Seconds; None where there was none."""
        values = sorted(self.seconds.get(kind, ()))
        return values[min(len(values) - 1, int(share * len(values)))] if values else None

    def line(self, now: float, state: str) -> str:
        """How things are."""
        counts = self.counts
        parts = [
            f"{now:5.0f} s",
            state,
            f"infer {self.ok['infer']} ok {self.not_ok['infer']} failed{self._p99('infer')}",
            f"load {self.ok['load']} ok {self.not_ok['load']} failed{self._p99('load')}",
            f"evict {counts['evictions']}",
            f"unload {self.ok['unload']}{self._p99('unload')}",
            f"heal {counts['heals']}",
        ]
        return " · ".join(parts)

    def table(self) -> str:
        """At the end."""
        rows = [f"{'call':10}{'ok':>8}{'failed':>8}{'p50 ms':>10}{'p99 ms':>10}{'max ms':>10}"]
        for kind in ("infer", "predict", "load", "size", "unload", "index", "status"):
            cells = [self._ms(kind, share) for share in (0.5, 0.99, 1.0)]
            rows.append(f"{kind:10}{self.ok[kind]:>8}{self.not_ok[kind]:>8}" + "".join(f"{cell:>10}" for cell in cells))
        rows += ["", *(f"{what:50}{count:>8}" for what, count in sorted(self.counts.items()))]
        for kind, reasons in self.reasons.items():
            rows += ["", f"why {kind}s failed", *(f"{count:>6}  {reason}" for reason, count in reasons.most_common(MOST_REASONS))]
        if self.faults:
            rows += ["", f"{'fault':32}{'times':>8}{'models':>8}{'survived':>10}{'lost':>6}{'slowest s':>12}"]
            rows += [
                f"{name:32}{row.times:>8}{row.tried:>8}{row.survived:>10}{row.lost:>6}{row.slowest:>12.1f}"
                for name, row in self.faults.items()
            ]
        return "\n".join(rows)

    def calls(self) -> str:
        """What came of each kind of call, in a line."""
        kinds = ("infer", "load", "unload", "predict")
        parts = [f"{kind} {self.ok[kind]} ok, {self.not_ok[kind]} failed, p99 {self._ms(kind, 0.99)} ms" for kind in kinds]
        return f"calls: {'; '.join(parts)}"

    def failed(self, kind: str, text: str) -> None:
        """A call of this kind has failed; numbers and ids do not make another reason."""
        self.not_ok[kind] += 1
        plain = " ".join("N" if any(letter.isdigit() for letter in word) else word for word in text.split())
        self.reasons.setdefault(kind, Counter())[plain[:REASON_COLUMNS]] += 1

    def _ms(self, kind: str, share: float) -> str:
        value = self.percentile(kind, share)
        return "-" if value is None else f"{value * 1000:.1f}"

    def _p99(self, kind: str) -> str:
        return f" ({self._ms(kind, 0.5)}/{self._ms(kind, 0.99)} ms)" if self.seconds.get(kind) else ""
