"""
Answers and failures as LMI and as TGI write them, whole and line by line. Pure.

What is not known is null, or what TGI's types allow for it: its clients need a number for an id: -1, as DJL Serving has it. Sources: "LMI
handlers Inference API Schema", also its Error Responses; TGI `router/src/lib.rs` and its clients, which go by `error_type`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from adapter.errors import AdapterError, InvalidModel
from adapter.fronts.failures import NO_SPACE, UNAVAILABLE, HttpError, is_out_of_memory, status_of
from adapter.fronts.llm.backends import Token
from adapter.fronts.llm.generating import AT_ONCE, Collector, Lines, all_of
from adapter.fronts.llm.parameters import MOST_PROMPTS, BadParameter, Wishes, wishes_of, with_sequences
from adapter.inference import Failure, InferenceFailed
from adapter.settings.fronts import LlmSettings

JSON_LINES, SSE = "application/jsonlines", "text/event-stream"
UNKNOWN_ID = -1
UNKNOWN_REASON = "eos_token"
"""TGI's types have no null here. Source: DJL Serving, of TensorRT-LLM: what has not reached its limit has come to its end."""
FAILED, INVALID, OVERLOADED = 424, 422, 429
TYPES = {INVALID: "validation", FAILED: "generation", OVERLOADED: "overloaded", 500: "incomplete_generation"}
"""Status → TGI's `error_type`."""
Values = AsyncGenerator[Mapping[str, Any], None]


Fault = AdapterError | HttpError
"""Why a request has failed."""


class Lmi:
    """LMI's rolling batch: how the body of one request is read, and its answers are written. The other schemas differ in parts."""

    is_tgi: ClassVar[bool] = False
    is_dynamic: ClassVar[bool] = False
    """It knows texts alone."""
    content_type: ClassVar[str] = JSON_LINES
    """Of a stream."""
    end: ClassVar[bytes] = b""
    """Of a stream."""
    bad: ClassVar[int] = FAILED
    """Status of a wrong request."""
    bad_model: ClassVar[int] = FAILED
    """Status where the model's own files are wrong."""
    full: int = NO_SPACE
    """Status where memory is out."""
    failures: ClassVar[Mapping[Failure, int]] = {Failure.INVALID: FAILED, Failure.UNSUPPORTED: FAILED, Failure.INTERNAL: FAILED}
    """Status of a failed inference, where it is not that of all fronts."""
    is_stream: bool | None = None
    """None: the body says it."""
    is_list = False
    """An answer that is no stream is one of all prompts."""
    own: LlmSettings | None = None
    """Of the model; None: the path has said the schema, or the body, which then has nothing of the settings."""
    model = ""
    """That the body names; then the model's name, as an answer has it."""
    wishes: Any = None
    """`Wishes`; None: the body is not read yet."""
    problem: Fault | None = None
    """Why nothing can be asked."""

    def read(self, value: Any) -> Wishes:
        """Of a parsed body. Raises HttpError: 400."""
        if not isinstance(value, dict):
            raise HttpError(400, "the body must be a JSON object with inputs")
        inputs = value.get("inputs")
        prompts: list[Any] = inputs if isinstance(inputs, list) and self.is_dynamic else [inputs]
        if not prompts or not all(isinstance(prompt, str) and prompt for prompt in prompts):
            kind = "a text" if self.is_tgi else "a text, or a list of texts,"
            raise HttpError(400, f"inputs must be {kind} and not empty")
        if len(prompts) > MOST_PROMPTS:
            raise HttpError(400, f"inputs has {len(prompts)} texts; {MOST_PROMPTS} are the most")
        wishes, is_stream = wishes_of(value.get("parameters"), is_tgi=self.is_tgi), value.get("stream")
        if not isinstance(is_stream, bool | None):
            raise HttpError(400, "stream must be true or false")
        wishes = replace(wishes, prompts=prompts, is_stream=is_stream if self.is_stream is None else self.is_stream)
        if self.is_dynamic:
            return replace(wishes, has_details=False, is_dynamic=True)
        return wishes if self.is_tgi else with_sequences(wishes)

    async def stream(self, lines: Sequence[Lines]) -> Values:
        """The lines of a stream, out of the tokens of each prompt; here there is one."""
        index = 0
        async for token, end in lines[0]:
            index += 1
            yield self.line(token, index, end)

    def answer(self, ends: Sequence[Collector]) -> Any:
        """An answer that is no stream: of all prompts, or of all sequences of one."""
        if self.is_list:
            return [self.whole(end) for end in ends]
        best, *others = sorted(ends, key=lambda end: sum(token.log_prob or 0 for token in end.tokens or ()), reverse=True)
        value = dict(self.whole(best))
        if others:
            details = [self.whole(end) for end in others]
            value["details"]["best_of_sequences"] = [{**each["details"], "generated_text": each["generated_text"]} for each in details]
        return value

    def line(self, token: Token, index: int, end: Collector | None) -> Mapping[str, Any]:
        """One token of a stream, counted from 1; the last has the end."""
        line: dict[str, Any] = {"token": self._token(token)}
        if end is not None:
            line["generated_text"] = end.text
            if end.wishes.has_details:
                line["details"] = self._details(end)
        return line

    def whole(self, end: Collector) -> Mapping[str, Any]:
        """The answer to one prompt."""
        if not end.wishes.has_details:
            return {"generated_text": end.text}
        tokens = None if end.tokens is None else [self._token(token) for token in end.tokens]
        return {"generated_text": end.text, "details": {**self._details(end), "tokens": tokens}}

    def status(self, error: Fault, names: Collection[str], said: bytes | bytearray = b"") -> int:
        """
        Of a failed request.

        Args:
            error: what has failed.
            names: of the model: they do not count where a text says that memory is out.
            said: the body: neither do its words.
        """
        if isinstance(error, HttpError):
            return self.bad if error.status == 400 else error.status
        if isinstance(error, InferenceFailed):
            is_full = is_out_of_memory(error.text, names, is_load=False, said=said)
            return self.full if is_full else self.failures.get(error.failure, status_of(error))
        return self.bad_model if isinstance(error, InvalidModel) else status_of(error)

    def failed(self, status: int, error: Fault) -> Mapping[str, Any]:
        """The answer to a request that failed. LMI's to a bad parameter, or a failed generation, is as if there were a text."""
        body = {"error": error.text, "code": status}
        if not isinstance(error, BadParameter | InferenceFailed):
            return body
        details = {"finish_reason": "error", "generated_tokens": None, "inputs": None, "tokens": None}
        return {"generated_text": "", "details": details, **body}

    def broken(self, status: int, error: Fault) -> Mapping[str, Any]:
        """The last line of a stream whose generation failed. The log probability of -1 is the document's own mark of an error."""
        return {
            "token": {"id": -1, "text": "", "log_prob": -1, "special_token": True, "error_msg": error.text},
            "generated_text": "",
            "details": {"finish_reason": "error", "generated_tokens": None, "inputs": None},
        }

    def _token(self, token: Token) -> Mapping[str, Any]:
        return {"id": token.id, "text": token.text, "log_prob": token.log_prob}

    def _details(self, end: Collector) -> Mapping[str, Any]:
        return {"finish_reason": end.finish_reason, "generated_tokens": end.generated_tokens, "inputs": end.prompt}


class Dynamic(Lmi):
    """LMI: dynamic batch."""

    is_dynamic: ClassVar[bool] = True
    is_list = True

    async def stream(self, lines: Sequence[Lines]) -> Values:
        """
        A line has the next text of each prompt; of one that has ended, or not begun, an empty one. Without any text there is one line.
        """
        has_line = False
        for start in range(0, len(lines), AT_ONCE):
            found: Sequence[Any] = [None]
            while found:
                found = await all_of(anext(each, None) for each in lines[start : start + AT_ONCE])
                texts = [entry[0].text if entry is not None else "" for entry in found]
                if any(texts):
                    has_line = True
                    yield {"outputs": [""] * start + texts + [""] * (len(lines) - start - len(texts))}
                found = [entry for entry in found if entry is not None]
        if not has_line:
            yield {"outputs": [""] * len(lines)}

    def failed(self, status: int, error: Fault) -> Mapping[str, Any]:
        """As `Lmi`."""
        return {"error": error.text, "code": status, "message": "invoke handler failure"}

    broken = failed


class Tgi(Lmi):
    """Text generation inference; its answer is a list of one, or an object."""

    is_tgi: ClassVar[bool] = True
    content_type: ClassVar[str] = SSE
    bad: ClassVar[int] = INVALID
    failures: ClassVar[Mapping[Failure, int]] = {
        Failure.INVALID: INVALID,
        Failure.UNSUPPORTED: INVALID,
        Failure.INTERNAL: FAILED,
        Failure.UNAVAILABLE: OVERLOADED,
        Failure.TIMEOUT: 500,
    }

    def __init__(self, *, is_list: bool = True, is_stream: bool | None = None, full: int = OVERLOADED) -> None:
        self.is_list = is_list
        self.full = full
        self.is_stream = is_stream

    def line(self, token: Token, index: int, end: Collector | None) -> Mapping[str, Any]:
        """As `Lmi`."""
        details = {**self._details(end), "input_length": end.prompt_tokens} if end is not None and end.wishes.has_details else None
        text = end.text if end is not None else None
        return {"index": index, "token": self._token(token), "generated_text": text, "details": details}

    def whole(self, end: Collector) -> Mapping[str, Any]:
        """As `Lmi`."""
        if not end.wishes.has_details:
            return {"generated_text": end.text}
        tokens = [self._token(token) for token in end.tokens or ()]
        return {"generated_text": end.text, "details": {**self._details(end), "prefill": [], "tokens": tokens}}

    def failed(self, status: int, error: Fault) -> Mapping[str, Any]:
        """As `Lmi`."""
        return tgi_body(status, error.text)

    def broken(self, status: int, error: Fault) -> Mapping[str, Any]:
        """As `Lmi`."""
        return {"error": error.text, "error_type": "generation"}

    def _token(self, token: Token) -> Mapping[str, Any]:
        token_id = UNKNOWN_ID if token.id is None else token.id
        return {"id": token_id, "text": token.text, "logprob": token.log_prob, "log_prob": token.log_prob, "special": False}

    def _details(self, end: Collector) -> Mapping[str, Any]:
        count = UNKNOWN_ID if end.generated_tokens is None else end.generated_tokens
        return {"finish_reason": end.finish_reason or UNKNOWN_REASON, "generated_tokens": count, "seed": end.seed, "inputs": end.prompt}


def tgi_body(status: int, text: str) -> Mapping[str, Any]:
    """An error as TGI writes it. Without a type its clients go by the status."""
    kind = TYPES.get(OVERLOADED if status == UNAVAILABLE else INVALID if status in (408, 413, 415) else status)
    return {"error": text, "error_type": kind} if kind else {"error": text}
