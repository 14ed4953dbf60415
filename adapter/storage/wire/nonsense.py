"""Answers that came whole and are no answers to what was asked."""

from __future__ import annotations

import requests
from urllib3.exceptions import HTTPError

NONSENSE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""What libraries raise over answers that are not what they expect."""


def is_nonsense(error: BaseException | None) -> bool:
    """Errors of the network can be of these classes too, and are none."""
    if isinstance(error, requests.exceptions.InvalidJSONError):
        return True
    return isinstance(error, NONSENSE) and not isinstance(error, (OSError, HTTPError))
