"""
OpenAI's completions and chat completions: what a body asks for, and the answers. Pure.

A field that would change the answer and that cannot be had is refused by its name; others that are unknown are ignored. Source:
OpenAI's API reference, "Completions" and "Chat"; of what servers leave out: vLLM's OpenAI server.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import msgspec
import orjson

from adapter.fronts.failures import HttpError, parsed
from adapter.fronts.llm.backends import Token
from adapter.fronts.llm.generating import AT_ONCE, Collector, Step, totals
from adapter.fronts.llm.parameters import MOST_PROMPTS, TEXT, BadParameter, Wishes, checked, integer, wishes_of
from adapter.fronts.llm.schemas import SSE, Dynamic, Fault, Lmi

DEFAULT_TOKENS = {False: 16, True: 512}
"""`max_tokens`, of completions (OpenAI's own) and of chats, where OpenAI has the rest of the context, which is not known here."""
_NAMES = {
    "max_tokens": "max_new_tokens", "max_completion_tokens": "max_new_tokens", "temperature": "temperature", "top_p": "top_p",
    "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty", "seed": "seed", "stop": "stop_sequences",
    "top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repetition_penalty", "ignore_eos": "ignore_eos_token",
    "min_tokens": "min_length", "stop_token_ids": "stop_token_ids",
}  # fmt: skip
"""Field → LMI's name of it. The last six are vLLM's own."""
_FIELDS = {_NAMES[field]: field for field in reversed(_NAMES)}
_REFUSED: Mapping[str, Sequence[Any]] = {
    "tools": ([],), "tool_choice": ("none", "auto"), "functions": ([],), "function_call": ("none", "auto"), "logit_bias": ({},),
    "suffix": ("",), "response_format": ({"type": "text"},), "top_logprobs": (0,), "audio": (), "modalities": (["text"],),
    "prediction": (), "web_search_options": (), "best_of": (1,), "guided_json": (), "guided_regex": (), "guided_choice": (),
}  # fmt: skip
"""Field that cannot be had → values that ask for nothing."""


class _Part(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: Annotated[list[Any], msgspec.Meta(max_length=0)] | None = None
    function_call: None = None
    audio: None = None


_PROMPTS = Annotated[list[TEXT], msgspec.Meta(min_length=1)]
_MESSAGES = Annotated[list[_Message], msgspec.Meta(min_length=1)]


def _messages(value: Any) -> bytes:
    """As JSON, with one text each; other texts may be for the template."""
    found = []
    for raw, message in zip(value, checked("messages", _MESSAGES, value), strict=True):
        content = message.content
        text = content if isinstance(content, str) else "\n".join(part.text for part in content or ())
        found.append({**{name: entry for name, entry in raw.items() if isinstance(entry, str)}, "content": text})
    return orjson.dumps(found)


@dataclass(kw_only=True)
class OpenAi(Lmi):
    """Completions, or chat completions: the answers to one request."""

    end: ClassVar[bytes] = b"data: [DONE]\n\n"
    statuses: ClassVar[Mapping[int, int]] = {}
    content_type: str = SSE
    is_chat: bool
    head: Mapping[str, Any] = field(default_factory=dict)
    """Of each answer to this request."""
    ends: dict[int, Collector | None] = field(default_factory=dict)
    """Of each choice of a stream that has begun."""

    def read(self, value: Any) -> Wishes:
        """Of a parsed body. Raises HttpError; BadParameter."""
        if not isinstance(value, dict):
            raise HttpError(400, "the body must be a JSON object")
        given = {name: entry for name, entry in value.items() if entry is not None}
        self.model = name if isinstance(name := given.get("model"), str) else ""
        for name, neutral in _REFUSED.items():
            if name in given and given[name] not in neutral:
                raise BadParameter(name, "this server cannot do that")
        parameters: dict[str, Any] = {"temperature": 1, "max_new_tokens": DEFAULT_TOKENS[self.is_chat]}
        parameters |= {lmis: given[name] for name, lmis in _NAMES.items() if name in given}
        has_details = checked("logprobs", bool, given.get("logprobs", False)) if self.is_chat else "logprobs" in given
        if not self.is_chat and given.get("logprobs", 0) != 0:
            raise BadParameter("logprobs", "must be 0: of the tokens that were chosen")
        is_stream, has_prompt = (checked(name, bool, given.get(name, False)) for name in ("stream", "echo"))
        if has_prompt and self.is_chat:
            raise BadParameter("echo", "is of completions")
        wishes = wishes_of({**parameters, "do_sample": parameters["temperature"] != 0}, is_tgi=False)
        choices = checked("n", integer(1, MOST_PROMPTS), given.get("n", 1))
        if choices > 1 and "seed" in wishes.given:
            raise BadParameter("n", "with a seed all choices would be equal")
        prompt = given.get("prompt")
        prompts = [] if self.is_chat else checked("prompt", _PROMPTS, prompt if isinstance(prompt, list) else [prompt])
        if len(prompts) * choices > MOST_PROMPTS:
            raise BadParameter("prompt", f"{len(prompts)} prompts with {choices} choices each; {MOST_PROMPTS} choices are the most")
        if is_stream and max(len(prompts), 1) * choices > AT_ONCE:
            raise BadParameter("n" if choices > 1 else "prompt", f"a stream has at most {AT_ONCE} choices")
        kind, short = ("chat.completion", "chatcmpl") if self.is_chat else ("text_completion", "cmpl")
        kind += ".chunk" if self.is_chat and is_stream else ""
        self.head = {"id": f"{short}-{uuid.uuid4().hex}", "created": int(time.time()), "object": kind}
        return replace(
            wishes,
            prompts=[prompt for prompt in prompts for _ in range(choices)],
            messages=_messages(given.get("messages")) if self.is_chat else b"",
            choices=choices,
            is_stream=is_stream,
            has_details=has_details,
            has_prompt_in_text=has_prompt,
            has_usage=checked("stream_options", dict[str, bool | None], given.get("stream_options", {})).get("include_usage") is True,
        )

    def answer(self, ends: Sequence[Collector]) -> Any:
        """As `Lmi`: a choice each, those of one prompt beside each other."""
        choices = []
        for index, end in enumerate(ends):
            said = {"message": {"role": "assistant", "content": end.text, "refusal": None}} if self.is_chat else {"text": end.text}
            choices.append(self._choice(index, said, end.tokens or (), end))
        return {**self.head, "model": self.model, "choices": choices, "usage": self._usage(ends)}

    def values(self, step: Step) -> Iterator[Mapping[str, Any]]:
        """As `Lmi`: pieces of choices."""
        for index, (token, end) in step.items():
            is_first = index not in self.ends
            self.ends[index] = end
            if is_first and self.is_chat:
                yield self._piece(index, {"delta": {"role": "assistant", "content": ""}})
            elif is_first and self.wishes.has_prompt_in_text:
                yield self._piece(index, {"text": self.wishes.prompts[index]})
            if token.text:
                yield self._piece(index, {"delta": {"content": token.text}} if self.is_chat else {"text": token.text}, [token])
            if end is not None:
                yield self._piece(index, {"delta": {}} if self.is_chat else {"text": ""}, (), end)
        ends = [end for end in self.ends.values() if end is not None]
        if self.wishes.has_usage and len(ends) == len(self.wishes.prompts):
            yield {**self.head, "model": self.model, "choices": [], "usage": self._usage(ends)}

    def failed(self, status: int, error: Fault) -> Mapping[str, Any]:
        """As `Lmi`; the text names a field as its caller does."""
        if not isinstance(error, BadParameter):
            return error_body(status, error.text)
        field = _FIELDS.get(error.name, error.name)
        return error_body(status, f"{field}: {error.words}", field)

    broken = failed

    def _piece(self, *choice: Any) -> Mapping[str, Any]:
        usage = {"usage": None} if self.wishes.has_usage else {}
        return {**self.head, "model": self.model, "choices": [self._choice(*choice)], **usage}

    def _choice(self, index: int, said: Mapping[str, Any], tokens: Sequence[Token] = (), end: Collector | None = None) -> Mapping[str, Any]:
        """OpenAI has two reasons: what has not reached its limit has come to its end."""
        reason = None if end is None else "length" if end.finish_reason == "length" else "stop"
        return {"index": index, **said, "logprobs": self._log_probs(tokens), "finish_reason": reason}

    def _usage(self, ends: Sequence[Collector]) -> Mapping[str, int] | None:
        """None: the backend does not tell. The choices of one prompt have read it once."""
        prompt, completion = totals(ends, self.wishes.choices)
        if prompt is None or completion is None:
            return None
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def _log_probs(self, tokens: Sequence[Token]) -> Mapping[str, Any] | None:
        if not tokens or not self.wishes.has_details:
            return None
        texts, values = [token.text or "" for token in tokens], [token.log_prob for token in tokens]
        if self.is_chat:
            entries = [
                {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}
                for text, value in zip(texts, values, strict=True)
            ]
            return {"content": entries, "refusal": None}
        return {"tokens": texts, "token_logprobs": values, "top_logprobs": None, "text_offset": None}


def error_body(status: int, text: str, field: str | None = None, code: str | None = None) -> Mapping[str, Any]:
    """An error as OpenAI writes it."""
    kind = "permission_error" if status == 403 else "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": text, "type": kind, "param": field, "code": code}}


# ---- any body of a language model


MOST_BYTES = 4 * 1024 * 1024
"""Of such a body: a model reads far less, and texts are copied in the event loop."""


def is_openai(value: Any) -> bool:
    """Whether a body without `inputs` is one of OpenAI's."""
    return isinstance(value, dict) and "inputs" not in value and ("messages" in value or "prompt" in value)


def meant(schema: Lmi, body: bytes) -> Lmi:
    """The schema, with what the body wants, or why it cannot be had. Raises HttpError: the body is no JSON, or too long."""
    if len(body) > MOST_BYTES:
        raise HttpError(413, f"the body is longer than {MOST_BYTES} bytes, the most for a language model")
    return understood(schema, parsed(body))


def understood(schema: Lmi, value: Any) -> Lmi:
    """The same of a parsed body: its form may say another schema than the settings do."""
    if schema.is_open and is_openai(value):
        schema = OpenAi(is_chat="messages" in value)
    elif schema.is_open and not schema.is_tgi and isinstance(value, dict) and isinstance(value.get("inputs"), list):
        schema = Dynamic(content_type=schema.content_type, streams=schema.streams)
    try:
        schema.wishes = schema.wishes or schema.read(value)
    except HttpError as error:
        schema.wishes = error
    return schema
