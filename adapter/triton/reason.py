"""
Triton's words for a failed load, turned into one sentence that begins with the cause.

Pure text. Source of the forms: Triton 2.51's answers and index reasons, as the tests quote them.
"""

from __future__ import annotations

import re

LONGEST = 3000
"""Characters. The wire takes about 4 KB; what is cut here is the tail of a long message."""

_VERSION = re.compile(r"version -?\d+ is at \w+ state: ")
_CODE = re.compile(
    r"(?:Internal|Invalid argument|Not found|Unavailable|Unsupported|Unknown|Already exists|Cancelled):\s*",
    re.IGNORECASE,
)
_INNERMOST = re.compile(r"^\s*(?P<file>\S.*?)\((?P<line>\d+)\): (?P<function>\S+)", re.MULTILINE)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?', re.MULTILINE)
_STUB_DIED = re.compile(r"Stub process '[^']*' is not healthy")

NOT_READ = (
    "Triton could not read the model from its repository (a config.pbtxt that it does not accept, or files that no backend "
    "is known for); Triton's log has the reason"
)


def reason_of_refusal(model_id: str, details: str) -> str:
    """One line for the details of a failed RepositoryModelLoad."""
    if "failed to poll from model repository" in details:
        return NOT_READ
    details = details.removeprefix(f"load failed for model '{model_id}': ")
    parts = _VERSION.split(details)
    return "; ".join(dict.fromkeys(one_line(text) for text in parts[1:] or parts))


def one_line(text: str, *, moment: str = "while it was loading") -> str:
    """
    A reason of the index, of one version or of an inference: without Triton's code, a traceback squeezed to its last line and its place.

    Args:
        text: Triton's words.
        moment: when they were said, for a model whose process has died.
    """
    text = text.strip().removesuffix(";").strip()
    if code := _CODE.match(text):
        text = text[code.end() :]
    if _STUB_DIED.search(text):
        text = f"the model's python process died {moment} ({text.rstrip('.')}); Triton's log may have the reason"
    text = " ".join(_squeezed(text).split())
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    return text or "Triton gave no reason; its log may have it"


def _squeezed(text: str) -> str:
    message, marker, frames = text.partition("\n\nAt:\n")
    if marker:  # pybind11's form: the innermost frame comes first
        frame = _INNERMOST.search(frames)
        return f"{message}{_place(frame)}"
    _, marker, traceback = text.rpartition("Traceback (most recent call last):")
    if not marker:
        return text
    # Python's form: the innermost frame comes last; all lines but those of the exception are indented
    frame = next(reversed([*_FRAME.finditer(traceback)]), None)
    return " ".join(line for line in traceback.splitlines() if line and not line[0].isspace()) + _place(frame)


def _place(frame: re.Match[str] | None) -> str:
    if frame is None:
        return ""
    file = "/".join(frame["file"].split("/")[-2:])
    function = f", in {frame['function']}" if frame["function"] else ""
    return f" ({file} line {frame['line']}{function})"
