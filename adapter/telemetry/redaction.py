"""
The last defence against secrets in texts that leave the process: error texts, logs, HTTP answers.

Code that holds a credential never puts it into a text; this catches what a foreign library did. It
recognises shapes (URLs with a user or a query, AWS keys, PEM blocks, `password=…`), not meanings.
Every pattern takes linear time: texts come from clients.
"""

from __future__ import annotations

import re

MASK = "***"

_SUSPICIOUS = re.compile(
    r"://|-----BEGIN|A[A-Z0-9]{3}[A-Z0-9]{8}|[A-Za-z0-9/+]{40}|(?i:secret|token|password|authorization|access_key|private_key)"
)
"""Whether a text needs a closer look at all; most log fields do not."""

_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{1,40}-----.*?(?:-----END [A-Z0-9 ]{1,40}-----|\Z)", re.DOTALL)
_WORD = re.compile(r"[^\s'\"<>`]+")
_USER = re.compile(r"(?<=://)[^/?#]*@")
_KEY_ID = re.compile(r"(?<![A-Za-z0-9])(?:A3T[A-Z0-9]|AKIA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA|ASIA)[A-Z0-9]{8,124}")
_SECRET_KEY = re.compile(
    r"(?<![A-Za-z0-9/+])(?=[a-z0-9/+]{0,39}[A-Z])(?=[A-Z0-9/+]{0,39}[a-z])(?=[A-Za-z/+]{0,39}[0-9])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"
)
"""40 characters of base64 with upper case, lower case and digits: an AWS secret, not a hex digest or a path of words."""
_ASSIGNED = re.compile(
    r"((?:secret_access_key|access_key_id|session_token|security-token|private_key|client_secret|password|authorization)"
    r"['\"]?\s?[:=]\s?)(?:(?:Bearer|Basic|AWS4-HMAC-SHA256) )?['\"]?[^\s'\",;}]+['\"]?",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """The text without anything that has the shape of a credential."""
    if not _SUSPICIOUS.search(text):
        return text
    text = _PEM.sub(f"[PEM {MASK}]", text)
    text = _ASSIGNED.sub(rf"\1{MASK}", text)
    text = _WORD.sub(_redact_url, text)
    text = _KEY_ID.sub(MASK, text)
    return _SECRET_KEY.sub(MASK, text)


def _redact_url(match: re.Match[str]) -> str:
    """A URL without its user and its query; both may be signatures or passwords."""
    word = match[0]
    if "://" not in word:
        return word
    return _USER.sub("", word.partition("?")[0])


def remember(value: str) -> None:
    """Mask this exact text from now on."""
