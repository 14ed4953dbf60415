"""
GETs of blobs without the library's machinery: signed by the library, sent by us.

What the library does with a body: reads 4 KiB at a time, holds the whole, asks again three times with sleeps between
when the body ends early, and asks for more where the blob has pages.
"""

from __future__ import annotations

import uuid
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

import requests
from azure.core.pipeline import PipelineContext, PipelineRequest
from azure.core.pipeline.policies import UserAgentPolicy
from azure.core.pipeline.transport import HttpRequest
from azure.storage.blob import ContainerClient
from azure.storage.blob import __version__ as _library
from requests.utils import requote_uri

from adapter.storage.stores.answers import code_in
from adapter.storage.stores.azure.credentials import STORAGE_SCOPE, Tokens
from adapter.storage.wire.gets import Answer, Body, read_whole
from adapter.storage.wire.sessions import Below

_SAFE = "~/"
"""As the library quotes names."""
_USER_AGENT = UserAgentPolicy(sdk_moniker=f"storage-blob/{_library}").user_agent
_ASKED = {"Accept": "application/xml", "Accept-Encoding": "identity", "User-Agent": _USER_AGENT}
_CODE_HEADER = "x-ms-error-code"


class Blobs:
    """The blobs of one container, with the credentials of a client of the library."""

    def __init__(self, sdk: ContainerClient, session: requests.Session) -> None:
        """`session`: a prepared one."""
        self._credential: Any = sdk.credential
        url, _, query = sdk.url.partition("?")
        self._url = f"{url}/"
        self._query = f"?{requote_uri(query)}" if query else ""
        """With the SAS token, if there is one."""
        self._version = {"x-ms-version": sdk.api_version}
        self._below = Below(session, self._url)

    def get(self, name: str, start: int, length: int, etag: str) -> Answer:
        """
        The answer to a GET of a range of a version.

        Raises:
            AzureError: the library cannot sign.
            NoTokenError: the identity has no token.
            whatever `Below.get` raises.
        """
        rest = quote(name, safe=_SAFE) + self._query
        headers = {"x-ms-range": f"bytes={start}-{start + length - 1}", "If-Match": f'"{etag}"', **self._version}
        headers |= {"x-ms-date": formatdate(usegmt=True), "x-ms-client-request-id": str(uuid.uuid4()), **_ASKED}
        if isinstance(self._credential, Tokens):
            headers["Authorization"] = f"Bearer {self._credential.get_token(STORAGE_SCOPE).token}"
        elif self._credential is not None:
            request = HttpRequest("GET", self._url + rest, headers)
            self._credential.on_request(PipelineRequest(request, PipelineContext(None)))
            headers["Authorization"] = request.headers["Authorization"]
        return self._below.get(rest, headers)


def code_of(answer: Answer, body: Body) -> str:
    """
    Azure's short code of an error, or whatever is in its place; empty where the status has to say enough.

    Raises:
        urllib3's HTTPError, OSError, ValueError: the error broke off, or is too long.
    """
    found = code_in(read_whole(body))
    return answer.headers.get(_CODE_HEADER, "") if found is None else found
