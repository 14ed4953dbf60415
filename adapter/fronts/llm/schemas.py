"""
Answers and failures as LMI and as TGI write them, whole and line by line. Pure.

What is not known is null, or what TGI's types allow for it: its clients need a number for an id: -1, as DJL Serving has it. Sources: "LMI
handlers Inference API Schema", also its Error Responses; TGI `router/src/lib.rs` and its clients, which go by `error_type`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from adapter.errors import AdapterError, InvalidModel
from adapter.fronts.failures import NO_SPACE, UNAVAILABLE, HttpError, is_out_of_memory, status_of
from adapter.fronts.llm.backends import Token
from adapter.fronts.llm.generating import Collector, Step
from adapter.fronts.llm.parameters import MOST_PROMPTS, BadParameter, Wishes, wishes_of, with_sequences
from adapter.inference import InferenceFailed

JSON_LINES, SSE = "application/jsonlines", "text/event-stream"
UNKNOWN_ID = -1
UNKNOWN_REASON = "eos_token"
"""TGI's types have no null here. Source: DJL Serving, of TensorRT-LLM: what has not reached its limit has come to its end."""
FAILED, INVALID, OVERLOADED = 424, 422, 429
TYPES = {
    **dict.fromkeys((INVALID, 408, 413, 415), "validation"), FAILED: "generation", 500: "incomplete_generation",
    **dict.fromkeys((OVERLOADED, UNAVAILABLE), "overloaded"),
}  # fmt: skip
"""Status → TGI's `error_type`."""
_FAILED_DETAILS = {"finish_reason": "error", "generated_tokens": None, "inputs": None}
Fault = AdapterError | HttpError
"""Why a request has failed."""


@dataclass(kw_only=True)
class Lmi:
    """LMI's rolling batch: how the body of one request is read, and its answers are written. The other schemas differ in parts."""

    is_tgi: ClassVar[bool] = False
    is_dynamic: ClassVar[bool] = False
    """It knows texts alone."""
    end: ClassVar[bytes] = b""
    """Of a stream."""
    statuses: ClassVar[Mapping[int, int]] = {400: FAILED, 500: FAILED, 501: FAILED}
    """Status that all fronts have for a wrong request, or a failed inference → this one's."""
    full: int = NO_SPACE
    """Status where memory is out."""
    content_type: str = JSON_LINES
    """Of a stream."""
    is_open: bool = False
    """The form of the body may say another schema."""
    is_list: bool = False
    """An answer that is no stream is one of all prompts."""
    is_stream: bool | None = None
    """None: the body says it, else `streams`."""
    streams: bool = False
    model: str = ""
    """That the body names; then the model's name, as an answer has it."""
    wishes: Any = None
    """`Wishes`, or the `Fault` for which there are none; None: the body is not read yet."""
    count: int = 0
    """Lines of a stream that were written."""

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
        wishes, said = wishes_of(value.get("parameters"), is_tgi=self.is_tgi), value.get("stream")
        if not isinstance(said, bool | None):
            raise HttpError(400, "stream must be true or false")
        is_stream = next(found for found in (self.is_stream, said, self.streams) if found is not None)
        wishes = replace(wishes, prompts=prompts, is_stream=is_stream)
        if self.is_dynamic:
            return replace(wishes, has_details=False, is_dynamic=True)
        return wishes if self.is_tgi else with_sequences(wishes)

    def values(self, step: Step) -> Iterator[Mapping[str, Any]]:
        """The next lines of a stream; here there is one prompt."""
        for token, end in step.values():
            self.count += 1
            yield self.line(token, self.count, end)

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
        if isinstance(error, InvalidModel):
            return self.statuses.get(500, 400)
        status = error.status if isinstance(error, HttpError) else status_of(error)
        if isinstance(error, InferenceFailed):
            is_full = is_out_of_memory(error.text, names, is_load=False, said=said)
            return self.full if is_full else self.statuses.get(status, status)
        return self.statuses.get(400, 400) if status == 400 else status

    def failed(self, status: int, error: Fault) -> Mapping[str, Any]:
        """The answer to a request that failed. LMI's to a bad parameter, or a failed generation, is as if there were a text."""
        body = {"error": error.text, "code": status}
        if not isinstance(error, BadParameter | InferenceFailed):
            return body
        return {"generated_text": "", "details": {**_FAILED_DETAILS, "tokens": None}, **body}

    def broken(self, status: int, error: Fault) -> Mapping[str, Any]:
        """The last line of a stream whose generation failed. The log probability of -1 is the document's own mark of an error."""
        return {
            "token": {"id": -1, "text": "", "log_prob": -1, "special_token": True, "error_msg": error.text},
            "generated_text": "",
            "details": _FAILED_DETAILS,
        }

    def _token(self, token: Token) -> Mapping[str, Any]:
        return {"id": token.id, "text": token.text, "log_prob": token.log_prob}

    def _details(self, end: Collector) -> Mapping[str, Any]:
        return {"finish_reason": end.finish_reason, "generated_tokens": end.generated_tokens, "inputs": end.prompt}


@dataclass(kw_only=True)
class Dynamic(Lmi):
    """LMI: dynamic batch."""

    is_dynamic: ClassVar[bool] = True
    is_list: bool = True

    def values(self, step: Step) -> Iterator[Mapping[str, Any]]:
        """A line has the next text of each prompt; of one that has ended, or not begun, an empty one. Only the first may be empty."""
        texts = [step[number][0].text if number in step else "" for number in range(len(self.wishes.prompts))]
        if any(texts) or not self.count:
            self.count += 1
            yield {"outputs": texts}

    def failed(self, status: int, error: Fault) -> Mapping[str, Any]:
        """As `Lmi`."""
        return {"error": error.text, "code": status, "message": "invoke handler failure"}

    broken = failed


@dataclass(kw_only=True)
class Tgi(Lmi):
    """Text generation inference; its answer is a list of one, or an object."""

    is_tgi: ClassVar[bool] = True
    statuses: ClassVar[Mapping[int, int]] = {400: INVALID, 500: FAILED, 501: INVALID, 503: OVERLOADED, 504: 500}
    full: int = OVERLOADED
    content_type: str = SSE
    is_list: bool = True

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
    return {"error": text, "error_type": TYPES[status]} if status in TYPES else {"error": text}
