"""Triton's words become one line that begins with the cause. The inputs are what Triton 2.51 said."""

from __future__ import annotations

import pytest
from grpc import StatusCode

from adapter.triton.inference.messages import failure_in_stream, failure_of
from adapter.triton.reason import LONGEST, NOT_READ, one_line, reason_of_refusal

FRAME = "load failed for model 'm': version 1 is at UNAVAILABLE state: "

CASES = {
    "an exception of the model's code": (
        FRAME + "Internal: RuntimeError: weights are corrupt\n\nAt:\n  /models/_triton_models/m/1/model.py(4): initialize\n;\n",
        "RuntimeError: weights are corrupt (1/model.py line 4, in initialize)",
    ),
    "the innermost of several frames": (
        FRAME + "Internal: KeyError: 'w'\n\nAt:\n  /models/m/1/weights.py(17): read\n  /models/m/1/model.py(4): initialize\n;\n",
        "KeyError: 'w' (1/weights.py line 17, in read)",
    ),
    "a message of several lines": (
        FRAME + "Internal: ValueError: first\n  second;\nthird\n\nAt:\n  /m/1/model.py(4): initialize\n;\n",
        "ValueError: first second; third (1/model.py line 4, in initialize)",
    ),
    "an import that fails at the top of the file": (
        FRAME + "Internal: ModuleNotFoundError: No module named 'torch'\n\nAt:\n  /models/m/1/model.py(1): <module>\n;\n",
        "ModuleNotFoundError: No module named 'torch' (1/model.py line 1, in <module>)",
    ),
    "a traceback in Python's own form": (
        FRAME + "Internal: could not start:\nTraceback (most recent call last):\n"
        '  File "/models/m/1/model.py", line 3, in initialize\n    load()\n    ^^^^^^\n'
        '  File "/models/m/1/net.py", line 8, in load\n    raise ValueError("shape")\nValueError: shape\nis wrong\n;\n',
        "ValueError: shape is wrong (1/net.py line 8, in load)",
    ),
    "two tracebacks": (
        FRAME + 'Internal: Traceback (most recent call last):\n  File "/m/a.py", line 1, in f\nOSError: no file\n\n'
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "/m/b.py", line 2, in g\nRuntimeError: no weights\n;\n',
        "RuntimeError: no weights (m/b.py line 2, in g)",
    ),
    "a backend that is not there": (
        FRAME + "Invalid argument: unable to find backend library for backend 'tensorrt', try specifying runtime on the model "
        "configuration.;\n",
        "unable to find backend library for backend 'tensorrt', try specifying runtime on the model configuration.",
    ),
    "a GPU that is not there": (
        FRAME + "Invalid argument: instance group m_0 of model m has kind KIND_GPU but no GPUs are available;\n",
        "instance group m_0 of model m has kind KIND_GPU but no GPUs are available",
    ),
    "a process that died": (
        FRAME + "Internal: Stub process 'm_0_0' is not healthy.;\n",
        "the model's python process died while it was loading (Stub process 'm_0_0' is not healthy); Triton's log may have the reason",
    ),
    "no version": (
        "load failed for model 'm': at least one version must be available under the version policy of model 'm'\n",
        "at least one version must be available under the version policy of model 'm'",
    ),
    "two versions with the same reason": (
        "load failed for model 'm': version 2 is at UNAVAILABLE state: Internal: bad;version 1 is at UNAVAILABLE state: Internal: bad;\n",
        "bad",
    ),
    "two versions with two reasons": (
        "load failed for model 'm': version 2 is at UNAVAILABLE state: Internal: bad;version 1 is at UNAVAILABLE state: Internal: worse;\n",
        "bad; worse",
    ),
    "what could not be read": ("failed to load 'm', failed to poll from model repository", NOT_READ),
    "something new": ("unheard of:\n  words", "unheard of: words"),
    "a code alone": (FRAME + "Internal: ;\n", "Triton gave no reason; its log may have it"),
    "nothing": ("", "Triton gave no reason; its log may have it"),
}


@pytest.mark.parametrize(("details", "expected"), CASES.values(), ids=CASES.keys())
def test_the_cause_comes_first(details: str, expected: str) -> None:
    """Without Triton's frame and code; where it happened comes after."""
    assert reason_of_refusal("m", details) == expected


def test_a_process_that_died_in_an_inference_was_not_loading() -> None:
    words = "Stub process 'm_0_0' is not healthy."
    told = "the model's python process died while it answered (Stub process 'm_0_0' is not healthy); Triton's log may have the reason"

    assert failure_of(StatusCode.INTERNAL, words).text == told
    assert failure_in_stream(f"Internal: {words}", is_models=True).text == told


def test_a_name_with_quotes_is_a_frame_too() -> None:
    """Ids hold anything."""
    name = "it's; version 1 is at B state: x"
    details = f"load failed for model '{name}': version 1 is at UNAVAILABLE state: Internal: bad;\n"

    assert reason_of_refusal(name, details) == "bad"


def test_a_long_message_keeps_its_beginning() -> None:
    """The cause is there."""
    text = one_line("Internal: RuntimeError: " + "x" * 100_000)

    assert text.startswith("RuntimeError: xxx")
    assert text.endswith("x…")
    assert len(text) == LONGEST


@pytest.mark.parametrize("text", ["\n\nAt:\n", "Traceback (most recent call last):", ";", "Internal: \n\nAt:\n  nothing here\n"])
def test_torn_tracebacks_do_no_harm(text: str) -> None:
    """Whatever is left is a line."""
    assert one_line(text)
    assert "\n" not in one_line(text)
