"""Mistakes in what is concluded of Triton's memory."""

from __future__ import annotations

from tests.prove.net.mistakes import Mistake

LEDGER = "unit/memory/test_the_ledger.py"
WATCH = "unit/memory/test_the_watch.py"
MISTAKES = (
    Mistake(
        "neighbours forgotten",
        "A load that overlaps with others has all that grew meanwhile.",
        "adapter/memory/attribution.py",
        "least = growth - sum(most for _, most in others)",
        "least = growth",
        ("unit/memory/test_what_grew_is_laid_to_the_loads.py", LEDGER),
    ),
    Mistake(
        "links followed",
        "The reporter's file may be a link to any file.",
        "adapter/memory/report.py",
        "opened(path, os.O_RDONLY | os.O_NOFOLLOW)",
        "opened(path, os.O_RDONLY)",
        ("unit/memory/test_the_reporter_is_not_believed.py",),
    ),
    Mistake(
        "kept heap forgotten",
        "Memory that an unload did not give back makes the next model small.",
        "adapter/memory/ledger.py",
        "told = measure(low, high + self._unreturned, estimate_bytes)",
        "told = measure(low, high, estimate_bytes)",
        (LEDGER,),
    ),
    Mistake(
        "old reports believed",
        "A report of a reporter that has ended counts for ever.",
        "adapter/memory/watch.py",
        "return told if told is not None and self._clock() - told.at < OLD_SECONDS else None",
        "return told",
        (WATCH,),
    ),
    Mistake(
        "a full Triton",
        "Models are loaded until the kernel kills Triton.",
        "adapter/memory/watch.py",
        "told.used_bytes > NEARLY_FULL * told.limit_bytes",
        "told.used_bytes > 2 * told.limit_bytes",
        (WATCH,),
    ),
    Mistake(
        "ended processes",
        "A process that has ended, as the one in which Triton completes a config, is waited for.",
        "adapter/memory/ledger.py",
        "for pid, known in self._stubs.items() if pid in report.later}",
        "for pid, known in self._stubs.items()}",
        (LEDGER,),
    ),
    Mistake(
        "untold processes",
        "A model is measured without those of its processes that were not told yet.",
        "adapter/memory/ledger.py",
        "if report.later <= self._stubs.keys():",
        "if report.later is not None:",
        (LEDGER,),
    ),
    Mistake(
        "a full GPU",
        "Models are loaded beyond the memory of their GPU.",
        "adapter/memory/watch.py",
        "device.used_bytes - kept + size_bytes > device.total_bytes",
        "device.used_bytes > device.total_bytes",
        (WATCH,),
    ),
    Mistake(
        "a base of models",
        "An adapter that starts beside loaded models takes all that is used for Triton's own.",
        "adapter/memory/ledger.py",
        "if booked_bytes is not None and not self.is_watching",
        "if not self.is_watching",
        (WATCH,),
    ),
    Mistake(
        "one copy",
        "The files of a model count once, though each instance holds them.",
        "adapter/layout/model_config.py",
        "return max(held.values(), default=1)",
        "return 1",
        ("unit/layout/test_each_copy_of_a_model_counts.py",),
    ),
    Mistake(
        "measured less",
        "A prediction is below what was measured, when files say less.",
        "adapter/lifecycle/facts.py",
        """            if source not in SEEN:
                return
""",
        "",
        ("unit/lifecycle/test_sizes.py",),
    ),
)
