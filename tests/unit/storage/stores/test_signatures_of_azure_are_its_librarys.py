"""What our signer says of a request, Azure's own library says of the same request."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from urllib.parse import quote, urlencode

from azure.core.pipeline.transport import HttpRequest
from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.storage.stores.azure import authorization

KEY = base64.b64encode(b"a-key-of-an-account").decode()
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40) | st.text(
    st.sampled_from("/~ .-_+%?&=#:;,!'()*@\t\n\x7fé€𝄞ab"), min_size=1, max_size=40
)
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40).map(str.strip).filter(bool)
FIELDS = ["restype", "comp", "prefix", "delimiter", "marker", "maxresults", "include"]


def librarys(url: str, headers: dict[str, str]) -> str:
    """Its value of `Authorization`."""
    request = HttpRequest("GET", url, headers=headers)
    context = SimpleNamespace(http_request=request, context=SimpleNamespace(options={}, transport=None))
    policy = SharedKeyCredentialPolicy("account", KEY)
    policy.on_request(context)
    return str(request.headers["Authorization"])


@settings(max_examples=300, deadline=None)
@given(
    host=st.sampled_from(["https://account.blob.core.windows.net", "http://127.0.0.1:10000/account"]),
    path=NAMES,
    query=st.dictionaries(st.sampled_from(FIELDS), NAMES, max_size=4),
    headers=st.dictionaries(st.sampled_from(["x-ms-date", "x-ms-version", "x-ms-range", "If-Match"]), VALUES),
)
def test_odd_names_are_signed_as_azures_library_signs_them(host: str, path: str, query: dict[str, str], headers: dict[str, str]) -> None:
    url = f"{host}/c/{quote(path, safe='/~')}" + (f"?{urlencode(query, quote_via=quote)}" if query else "")
    assert authorization("GET", url, headers, "account", base64.b64decode(KEY)) == librarys(url, headers)
