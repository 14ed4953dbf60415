"""
Python models that imitate the interfaces of language models' backends: names, types and shapes of tensors, when they answer, how they fail.

They are imitations: no weights, no tokenizer, nothing of the real backends. A token is a word of the prompt with the space before it,
again and again from the first; the id of a token is the number of its letters plus 100, its log probability minus that number / 10.
The word `</s>` is the end of the sequence. It and a stop sequence are generated and counted, as tokens without a text.
Source of the interfaces: vLLM backend `src/model.py`, TensorRT-LLM backend `all_models/inflight_batcher_llm` and `llmapi`, Triton's
own `qa/python_models` (`mock_llm`) and `repeat` backend.

Each is a folder as `tests.real.models` has them. All can be told to be slow and to fail, and each writes beside its `model.py` what it
has seen: `begun` when a request comes, `cancelled` when its caller has gone before the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.real.models import Files

Entry = tuple[str, str, str, bool]
"""Name, type, dims, whether it is optional."""


def options(data_type: str, *names: str) -> Sequence[Entry]:
    """Inputs of one element that a request may leave out."""
    return [(name, data_type, "1", True) for name in names]


PROMPT: Entry = ("text_input", "TYPE_STRING", "1", False)
VLLM_INPUTS: Sequence[Entry] = (
    PROMPT,
    *options("TYPE_STRING", "sampling_parameters"),
    *options("TYPE_BOOL", "stream", "exclude_input_in_output", "return_finish_reason", "return_cumulative_logprob", "return_logprobs"),
    *options("TYPE_BOOL", "return_num_input_tokens", "return_num_output_tokens"),
)
VLLM_OUTPUTS: Sequence[Entry] = (
    ("text_output", "TYPE_STRING", "-1", False),
    ("finish_reason", "TYPE_STRING", "-1", False),
    ("cumulative_logprob", "TYPE_FP32", "-1", False),
    ("logprobs", "TYPE_STRING", "-1", False),
    ("num_input_tokens", "TYPE_UINT32", "1", False),
    ("num_output_tokens", "TYPE_UINT32", "-1", False),
)
TRTLLM_INPUTS: Sequence[Entry] = (
    PROMPT,
    ("max_tokens", "TYPE_INT32", "1", False),
    ("stop_words", "TYPE_STRING", "-1", True),
    ("bad_words", "TYPE_STRING", "-1", True),
    *options("TYPE_FP32", "temperature", "top_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    *options("TYPE_INT32", "top_k"),
    *options("TYPE_UINT64", "seed"),
    *options("TYPE_BOOL", "return_log_probs", "exclude_input_in_output", "stream"),
)
TRTLLM_OUTPUTS: Sequence[Entry] = (
    ("text_output", "TYPE_STRING", "-1", False),
    ("cum_log_probs", "TYPE_FP32", "-1", False),
    ("output_log_probs", "TYPE_FP32", "-1, -1", False),
)
LLM_API_INPUTS: Sequence[Entry] = (
    PROMPT,
    *options("TYPE_BOOL", "streaming", "sampling_param_exclude_input_from_output", "return_finish_reason", "return_stop_reason"),
    *options("TYPE_INT32", "sampling_param_max_tokens", "sampling_param_top_k"),
    *options("TYPE_STRING", "sampling_param_stop"),
    *options("TYPE_FP32", "sampling_param_temperature", "sampling_param_top_p"),
    *options("TYPE_UINT64", "sampling_param_seed"),
)
LLM_API_OUTPUTS: Sequence[Entry] = (
    ("text_output", "TYPE_STRING", "-1", False),
    ("finish_reason", "TYPE_STRING", "-1", False),
    ("stop_reason", "TYPE_STRING", "-1", False),
)

COMMON = '''"""Imitates the interface of a language model's backend."""

import json
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

HERE = Path(__file__).parent
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def tensor(name, values, kind, shape=None):
    array = np.array(values, dtype=object if kind is bytes else kind)
    return pb_utils.Tensor(name, array if shape is None else array.reshape(shape))


class Given:
    """The inputs of a request, as Python's values; of one row, where there are some."""

    def __init__(self, request, row=0, rows=1):
        self.request = request
        self.row = row
        self.rows = rows

    def values(self, name):
        found = pb_utils.get_input_tensor_by_name(self.request, name)
        return None if found is None else found.as_numpy().reshape(self.rows, -1)[self.row]

    def one(self, name, default):
        values = self.values(name)
        if values is None:
            return default
        return values[0].decode() if isinstance(values[0], bytes) else values[0].item()

    def texts(self, name):
        values = self.values(name)
        return [] if values is None else [text.decode() for text in values]


class Model:
    """What all share: knobs, pace, failures, cancels."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        knobs = {name: float(entry["string_value"]) for name, entry in config.get("parameters", {}).items()}
        self.is_decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)
        self.delay_seconds = knobs.get("delay_seconds", 0.0)
        self.fail_at = knobs.get("fail_at", -1)

    def tokens(self, prompt, count, stops):
        """Text, token, and why it is the last or None."""
        words = prompt.split() or [""]
        for number in range(count):
            if number == self.fail_at:
                raise pb_utils.TritonModelException(f"the imitation fails at token {number}")
            if self.delay_seconds:
                time.sleep(self.delay_seconds)
            word = words[number % len(words)]
            if word in stops or word == "</s>":
                yield "", " " + word, "stop"
                return
            yield " " + word, " " + word, "length" if number == count - 1 else None

    def execute(self, requests):
        (HERE / "begun").touch()
        if self.is_decoupled:
            for request in requests:
                self.send(request)
            return None
        return [self.whole(request) for request in requests]

    def whole(self, request):
        try:
            *_, last = self.answers(Given(request))
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse(last)

    def send(self, request):
        sender = request.get_response_sender()
        try:
            for outputs in self.answers(Given(request)):
                if sender.is_cancelled():
                    (HERE / "cancelled").touch()
                    break
                sender.send(pb_utils.InferenceResponse(outputs))
        except Exception as error:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))))
        sender.send(flags=FINAL)


def collected(pieces):
    """(text, tokens, reason) of all in one."""
    pieces = list(pieces)
    return "".join(text for text, _, _ in pieces), [token for _, token, _ in pieces], pieces[-1][2] if pieces else None


def log_probability(token):
    return -len(token.strip()) / 10
'''

VLLM = """

class TritonPythonModel(Model):
    def answers(self, given):
        sampling = json.loads(given.one("sampling_parameters", "{}"))
        stops = sampling.get("stop") or []
        prompt, is_stream = given.one("text_input", ""), given.one("stream", False)
        is_without_prompt = given.one("exclude_input_in_output", None)
        if is_stream and is_without_prompt is False:
            raise ValueError("Error generating stream: the input cannot be in the output of a stream")
        pieces = self.tokens(prompt, int(sampling.get("max_tokens", 16)), [stops] if isinstance(stops, str) else stops)
        if is_stream:
            for text, token, reason in pieces:
                yield self.outputs(given, text, [token], reason, len(prompt.split()))
        else:
            text, tokens, reason = collected(pieces)
            yield self.outputs(given, text if is_without_prompt else prompt + text, tokens, reason, len(prompt.split()))

    def outputs(self, given, text, tokens, reason, prompt_tokens):
        found = [tensor("text_output", [text.encode()], bytes)]
        if given.one("return_finish_reason", False):
            found.append(tensor("finish_reason", [str(reason).encode()], bytes))
        if given.one("return_cumulative_logprob", False):
            found.append(tensor("cumulative_logprob", [sum(map(log_probability, tokens))], np.float32))
        if given.one("return_logprobs", False):
            rows = [
                {str(100 + len(token.strip())): {"logprob": log_probability(token), "rank": 1, "decoded_token": token}} for token in tokens
            ]
            found.append(tensor("logprobs", [json.dumps(rows).encode()], bytes))
        if given.one("return_num_input_tokens", False):
            found.append(tensor("num_input_tokens", [prompt_tokens], np.uint32))
        if given.one("return_num_output_tokens", False):
            found.append(tensor("num_output_tokens", [len(tokens)], np.uint32))
        return found
"""

TRTLLM = """

class TritonPythonModel(Model):
    def answers(self, given):
        prompt = given.one("text_input", "")
        pieces = self.tokens(prompt, given.one("max_tokens", 16), given.texts("stop_words"))
        if self.is_decoupled and given.one("stream", False):
            for text, token, _ in pieces:
                yield self.outputs(given, text, [token])
        else:
            text, tokens, _ = collected(pieces)
            yield self.outputs(given, text if given.one("exclude_input_in_output", False) else prompt + text, tokens)

    def whole(self, request):
        rows = len(pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy())
        if rows == 1:
            return super().whole(request)
        texts = [next(self.answers(Given(request, row, rows)))[0].as_numpy()[0, 0] for row in range(rows)]
        return pb_utils.InferenceResponse([tensor("text_output", texts, bytes, (-1, 1))])

    def outputs(self, given, text, tokens):
        found = [tensor("text_output", [text.encode()], bytes, (1, 1))]
        if given.one("return_log_probs", False):
            values = [log_probability(token) for token in tokens] or [0.0]
            found.append(tensor("cum_log_probs", [sum(values)], np.float32, (1, 1)))
            found.append(tensor("output_log_probs", values, np.float32, (1, 1, -1)))
        return found
"""

LLM_API = """

class TritonPythonModel(Model):
    def answers(self, given):
        prompt = given.one("text_input", "")
        stop = given.one("sampling_param_stop", "")
        so_far = "" if given.one("sampling_param_exclude_input_from_output", False) else prompt
        reason = None
        met = ""
        for text, token, reason in self.tokens(prompt, given.one("sampling_param_max_tokens", 16), [stop] if stop else []):
            so_far += text  # each answer has the text from the beginning
            met = stop if token.strip() == stop else ""
            if given.one("streaming", False) and self.is_decoupled:
                yield self.outputs(given, so_far, reason, met)
        if not (given.one("streaming", False) and self.is_decoupled):
            yield self.outputs(given, so_far, reason, met)

    def outputs(self, given, text, reason, met):
        found = [tensor("text_output", [text.encode()], bytes)]
        if given.one("return_finish_reason", False):
            found.append(tensor("finish_reason", [str(reason).encode()], bytes))
        if given.one("return_stop_reason", False):
            found.append(tensor("stop_reason", [(met or "None").encode()], bytes))
        return found
"""

PLAIN = """

class TritonPythonModel(Model):
    def answers(self, given):
        asked = json.loads(given.request.parameters() or "{}")
        pieces = self.tokens(given.one("text_input", ""), int(asked.get("max_new_tokens", 16)), [])
        for text, _, _ in pieces if self.is_decoupled else [collected(pieces)]:
            yield [tensor("text_output", [text.encode()], bytes)]
"""

MOCK = """

class TritonPythonModel(Model):
    def answers(self, given):
        asked = json.loads(given.request.parameters() or "{}")
        count = int(asked.get("REPETITION", 1))
        for number in range(count):
            time.sleep(float(asked.get("DELAY", 0)))
            if asked.get("FAIL_LAST") and number == count - 1:
                raise pb_utils.TritonModelException("An Error Occurred")
            yield [tensor("TEXT", [given.one("PROMPT", "").encode()], bytes)]
"""

REPEAT = """

class TritonPythonModel(Model):
    def answers(self, given):
        numbers = pb_utils.get_input_tensor_by_name(given.request, "IN").as_numpy()
        delays = pb_utils.get_input_tensor_by_name(given.request, "DELAY").as_numpy()
        for index, (number, milliseconds) in enumerate(zip(numbers, delays)):
            if index == self.fail_at:
                raise pb_utils.TritonModelException(f"the imitation fails at answer {index}")
            time.sleep(milliseconds / 1000)
            yield [tensor("OUT", [number], np.int32), tensor("IDX", [index], np.uint32)]
"""

WAITER = """

class TritonPythonModel(Model):
    def whole(self, request):
        (HERE / "busy").touch()
        end = time.monotonic() + Given(request).one("SECONDS", 0.0)
        while time.monotonic() < end:
            if request.is_cancelled():
                (HERE / "cancelled").touch()
                return pb_utils.InferenceResponse(error=pb_utils.TritonError("cancelled", pb_utils.TritonError.CANCELLED))
            time.sleep(0.01)
        return pb_utils.InferenceResponse([tensor("WAITED", [Given(request).one("SECONDS", 0.0)], np.float32)])
"""


def vllm(*, delay_seconds: float = 0, fail_at: int = -1) -> Files:
    """
    The vLLM backend's interface: decoupled, unbatched; options ride in `sampling_parameters`, a JSON text.

    Without `stream` one answer, with the prompt before it unless `exclude_input_in_output`. A stream has an answer a token, and its
    `finish_reason` is the text `None` until the last one.

    Args:
        delay_seconds: before each token.
        fail_at: number of the token, from 0, that becomes an error; -1 for none.
    """
    return _model(VLLM, VLLM_INPUTS, VLLM_OUTPUTS, is_decoupled=True, delay_seconds=delay_seconds, fail_at=fail_at)


def trtllm(*, is_decoupled: bool = True) -> Files:
    """The interface of TensorRT-LLM's ensemble: batched, an input for each option. It tells neither token ids nor why it has ended."""
    return _model(TRTLLM, TRTLLM_INPUTS, TRTLLM_OUTPUTS, is_decoupled=is_decoupled, max_batch_size=8)


def llm_api(*, is_decoupled: bool = True) -> Files:
    """The interface of TensorRT-LLM's LLM API: unbatched; each answer of a stream has the whole text so far."""
    return _model(LLM_API, LLM_API_INPUTS, LLM_API_OUTPUTS, is_decoupled=is_decoupled)


def plain(*, is_decoupled: bool = True) -> Files:
    """Of no known backend: from text to text, an answer a token; `max_new_tokens` is a parameter of the request."""
    return _model(PLAIN, (PROMPT,), (("text_output", "TYPE_STRING", "1", False),), is_decoupled=is_decoupled)


def mock_llm(*, is_decoupled: bool = True) -> Files:
    """
    As the model of the same name in Triton's own tests: `PROMPT` → `TEXT`, the same, REPETITION times, DELAY seconds before each.

    These two and FAIL_LAST are parameters of the request.
    """
    inputs = (("PROMPT", "TYPE_STRING", "1", False), ("STREAM", "TYPE_BOOL", "1", True))
    return _model(MOCK, inputs, (("TEXT", "TYPE_STRING", "1", False),), is_decoupled=is_decoupled)


def repeat(*, fail_at: int = -1) -> Files:
    """
    As Triton's `repeat` backend: for each number of `IN` an answer, after its `DELAY` (ms): `OUT`, and its place `IDX`.

    None at all for no number.
    """
    inputs = (("IN", "TYPE_INT32", "-1", False), ("DELAY", "TYPE_UINT32", "-1", False))
    outputs = (("OUT", "TYPE_INT32", "1", False), ("IDX", "TYPE_UINT32", "1", False))
    return _model(REPEAT, inputs, outputs, is_decoupled=True, fail_at=fail_at)


def waiter() -> Files:
    """No language model: waits `SECONDS`, and gives one answer (`WAITED`); looks for a cancel all the time. Leaves a file `busy`."""
    return _model(WAITER, (("SECONDS", "TYPE_FP32", "1", False),), (("WAITED", "TYPE_FP32", "1", False),), is_decoupled=False)


def _model(
    source: str,
    inputs: Sequence[Entry],
    outputs: Sequence[Entry],
    *,
    is_decoupled: bool,
    delay_seconds: float = 0,
    fail_at: int = -1,
    max_batch_size: int = 0,
) -> Files:
    config = f'backend: "python"\nmax_batch_size: {max_batch_size}\n'
    for kind, entries in (("input", inputs), ("output", outputs)):
        for name, data_type, dims, is_optional in entries:
            optional = " optional: true" if is_optional else ""
            config += f'{kind} [ {{ name: "{name}" data_type: {data_type} dims: [ {dims} ]{optional} }} ]\n'
    config += f"model_transaction_policy {{ decoupled: {str(is_decoupled).lower()} }}\n"
    for knob, value in (("delay_seconds", delay_seconds), ("fail_at", fail_at)):
        config += f'parameters {{ key: "{knob}" value {{ string_value: "{value}" }} }}\n'
    config += "instance_group [ { kind: KIND_CPU count: 1 } ]\n"
    return {"config.pbtxt": config.encode(), "1/model.py": (COMMON + source).encode()}
