"""
The last defence against secrets in texts that leave the process: error texts, logs, HTTP answers.

Code that holds a credential never puts it into a text; this catches what a foreign library did. Two
nets: the exact values of secrets that were read (`remember`), and shapes: URLs with a user or a
query, keys and tokens of the clouds, signatures of requests, PEM blocks, `password=…`. Every pattern
takes linear time: texts come from clients.
"""

from __future__ import annotations

import json
import re
import threading
from urllib.parse import quote

MASK = "***"
PIECE = 6
"""Characters; shorter values are not remembered: they are parts of ordinary words (`true`, `admin`)."""
KEPT_VALUES = 512
KEPT_CHARACTERS = 8 * 1024 * 1024
"""Of all forms together. A request may bring values that are long, and others that are longer."""

_SUSPICIOUS = re.compile(
    r"://|-----BEGIN|A[A-Z0-9]{3}[A-Z0-9]{8}|GOOG|AIza|[A-Za-z0-9/+]{40}|ya29\.|eyJ"
    r"|(?i:secret|token|passw|pwd|auth|key|sig|bearer|basic|credential|cookie)"
)
"""Whether a text needs a closer look at all; most log fields do not."""

_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{1,40}-----.*?(?:-----END [A-Z0-9 ]{1,40}-----|\Z)", re.DOTALL)
_WORD = re.compile(r"[^\s'\"<>`]+")
_USER = re.compile(r"(?<=://)[^/?#]*@")
_KEY_ID = re.compile(r"(?<![A-Za-z0-9])(?:(?:A3T[A-Z0-9]|AKIA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA|ASIA)[A-Z0-9]{8,124}|GOOG[A-Z0-9]{20,120})")
_SECRET_KEY = re.compile(
    r"(?<![A-Za-z0-9/+])(?=[a-z0-9/+]{0,39}[A-Z])(?=[A-Z0-9/+]{0,39}[a-z])(?=[A-Za-z/+]{0,39}[0-9])"
    r"(?:[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])|[A-Za-z0-9/+]{86}==)"
)
"""Base64 with upper case, lower case and digits: an AWS secret (40 characters) or an Azure key (64 bytes), not a hex digest or a path."""
_TOKEN = re.compile(r"(?<![A-Za-z0-9_-])(?:ya29\.[A-Za-z0-9._-]{10,}|AIza[A-Za-z0-9_-]{35}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9._-]{8,})")
"""Google's access tokens and API keys; JSON web tokens."""
_SCHEME = re.compile(
    r"(?<![A-Za-z0-9])((?i:Bearer|Basic|SharedKey(?:Lite)?)\s{1,3})(?=[a-z._~+/:=-]{0,200}[A-Z0-9])[A-Za-z0-9._~+/:=-]{8,}"
)
"""Credentials of an Authorization header. A word in small letters is prose: `Basic authentication`."""
_ASSIGNED = re.compile(
    r"((?:(?:secret|(?<!aws)access)[-_]?key(?:[-_]?id)?|(?:account|shared_?access|secret[-_]?access|api|private|client|sas|encryption)[-_]?key"
    r"|SharedAccessSignature|connection_?string|(?:session|security|access|refresh|(?<![a-z])id|auth|sas|bearer)[-_]?token"
    r"|client_?secret|password|passwd|pwd"
    r"|(?:proxy-)?authorization|(?:set-)?cookie)"
    r"\\?['\"]?\s?[:=]\s?)(?:(?:Bearer|Basic|Token|Digest|SharedKey|SharedKeyLite|AWS4-HMAC-SHA256) )?\\?['\"]?[^\s'\",;}]+['\"]?",
    re.IGNORECASE,
)
_SIGNED = re.compile(
    r"(?<![A-Za-z0-9])((?:sig|signature|(?:X-Amz-|X-Goog-)(?:Signature|Credential|Security-Token)|AWSAccessKeyId)(?:=|%3D))[^\s'\"<>`&;,}]+",
    re.IGNORECASE,
)
"""What makes a signed URL valid, also when only its query is quoted."""
_MAX_CHARACTERS = 65_536
"""More is not looked at; nothing beyond could be shown."""
_MAX_WORD = 4096
_SQUEEZED = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]+")
"""White space, control characters, and the marks that turn the direction of text."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class Remembered:
    """
    The exact values of secrets that were read: shapes miss a password without one.

    Bounded in number and in characters; the value that was remembered longest ago goes first. May be used from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, frozenset[str]] = {}
        """Value → its forms, the value remembered longest ago first."""
        self._forms: frozenset[str] = frozenset()
        """Of all values. Read without the lock: the set is only replaced."""

    def add(self, value: str) -> None:
        """Remember a value, and how it looks in a URL and in JSON."""
        value = value.strip()
        if len(value) < PIECE:
            return
        forms = frozenset({value, quote(value, errors="replace"), quote(value, safe="", errors="replace"), json.dumps(value)[1:-1]})
        with self._lock:
            self._values.pop(value, None)
            self._values[value] = forms
            while len(self._values) > KEPT_VALUES or sum(len(form) for each in self._values.values() for form in each) > KEPT_CHARACTERS:
                del self._values[next(iter(self._values))]
            self._forms = frozenset().union(*self._values.values())

    def masked(self, text: str) -> str:
        """The text with `MASK` in place of every value; of values that overlap, one for all."""
        spans = []
        for form in self._forms:
            start = text.find(form)
            while start >= 0:
                spans.append((start, start + len(form)))
                start = text.find(form, start + 1)
        kept, end = [], 0
        for start, stop in sorted(spans):
            if start >= end:
                kept += [text[end:start], MASK]
            end = max(end, stop)
        return "".join((*kept, text[end:]))


_own, _of_requests = Remembered(), Remembered()


def remember(value: str, *, lasts: bool = False) -> None:
    """
    Take this exact secret out of every later text.

    Args:
        value: of fewer than 6 characters is ignored: it may be part of any word.
        lasts: it is the adapter's own; secrets of requests do not push it out, however many there are.
    """
    (_own if lasts else _of_requests).add(value)


def redact(text: str) -> str:
    """The text without any remembered secret, and without anything that has the shape of a credential."""
    text = _of_requests.masked(_own.masked(text))
    if not _SUSPICIOUS.search(text):
        return text
    text = _PEM.sub(f"[PEM {MASK}]", text)
    for assigned in (_ASSIGNED, _SCHEME, _SIGNED):
        text = assigned.sub(rf"\1{MASK}", text)
    text = _WORD.sub(_redact_url, text)
    for bare in (_KEY_ID, _SECRET_KEY, _TOKEN):
        text = bare.sub(MASK, text)
    return text


def in_one_line(text: str) -> str:
    """A text made safe to show: one line of characters that can be encoded, without secrets. Of a very long one the beginning."""
    if len(text) > _MAX_CHARACTERS:
        text = text[:_MAX_CHARACTERS].rpartition(" ")[0] or text[: _MAX_WORD + 1]  # not half of a word: it may be a secret
    return _SQUEEZED.sub(" ", _SURROGATE.sub("\ufffd", redact(text))).strip()


def _redact_url(word: re.Match[str]) -> str:
    """A URL without its user and its query; both may be signatures or passwords."""
    return _USER.sub("", word[0].partition("?")[0]) if "://" in word[0] else word[0]
