"""
What an honest store of each type answers for one model of one file, so that a test can spoil a single phase.

Only the answers: `tests.fakes.hell` serves them. The answers have the fields that our clients read, no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.fakes.hell import Behaviour, Peer, answering, honest

KEY = "m.py"
ETAG = "0x8D4BCC2E4835CD0"
CONTENT = b"class TritonPythonModel:\n    pass\n" + b"#" * 2_500_000
XML, JSON = {"Content-Type": "application/xml"}, {"Content-Type": "application/json"}


@dataclass(frozen=True)
class HonestStore:
    """One type of store."""

    config: Callable[[str], dict[str, str]]
    """From the server's URL to a storage config with credentials of its own."""
    listing: Behaviour
    """The answer to a listing of `KEY`, and of nothing else."""
    reading: Behaviour
    """The file, or the part of it that was asked for."""
    is_listing: Callable[[Peer], bool]

    def spoiled(self, phase: str, behaviour: Behaviour) -> Behaviour:
        """Honest, but for one phase: `listing` or `reading`."""

        def answer(peer: Peer) -> None:
            is_listing = self.is_listing(peer)
            if (phase == "listing") == is_listing:
                behaviour(peer)
            else:
                (self.listing if is_listing else self.reading)(peer)

        return answer

    @property
    def honest(self) -> Behaviour:
        """In both phases."""
        return self.spoiled("listing", self.listing)


TYPES = {"s3": XML, "gcs": JSON, "azure": XML}
PAGES = {
    "s3": (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>false</IsTruncated>'
        f'<Contents><Key>{KEY}</Key><ETag>"{ETAG}"</ETag><Size>{len(CONTENT)}</Size></Contents></ListBucketResult>'
    ),
    "gcs": f'{{"items": [{{"name": "{KEY}", "size": "{len(CONTENT)}", "generation": "7"}}]}}',
    "azure": (
        '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://x/" ContainerName="b"><Blobs>'
        f"<Blob><Name>{KEY}</Name><Properties><Etag>{ETAG}</Etag><Content-Length>{len(CONTENT)}</Content-Length>"
        "<BlobType>BlockBlob</BlobType></Properties></Blob></Blobs><NextMarker /></EnumerationResults>"
    ),
}
"""Of the file."""
_ROW = re.compile('<Contents>.*</Contents>|<Blob>.*</Blob>|"items.*]')


def _listed(kind: str) -> Behaviour:
    """The file is listed for its own name, and nothing for the folder of that name."""

    def answer(peer: Peer) -> None:
        is_folder = f"{KEY}%2F" in peer.target or f"{KEY}/&" in peer.target or peer.target.endswith(f"{KEY}/")
        body = (_ROW.sub("", PAGES[kind]) if is_folder else PAGES[kind]).encode()
        answering(200, {**TYPES[kind], "Content-Length": len(body)}, body)(peer)

    return answer


STORES = {
    "s3": HonestStore(
        lambda url: {"type": "s3", "endpoint_url": url, "bucket": "b", "access_key_id": "someone", "secret_access_key": "s3cr3t-of-tests"},
        _listed("s3"),
        honest(CONTENT, {"ETag": f'"{ETAG}"'}),
        lambda peer: "list-type=2" in peer.target,
    ),
    "gcs": HonestStore(
        lambda url: {"type": "gcs", "endpoint_url": url, "bucket": "b", "anonymous": "true"},
        _listed("gcs"),
        honest(CONTENT, {"ETag": ETAG, "X-Goog-Generation": "7"}),
        lambda peer: "alt=media" not in peer.target,
    ),
    "azure": HonestStore(
        lambda url: {
            "type": "azure", "endpoint_url": f"{url}/account", "account_name": "account", "container": "b",
            "account_key": "c2VjcmV0LW9mLXRlc3Rz",
        },
        _listed("azure"),
        honest(CONTENT, {"ETag": f'"{ETAG}"', "Last-Modified": "Sat, 21 Nov 2026 10:00:00 GMT", "x-ms-blob-type": "BlockBlob"}),
        lambda peer: "comp=list" in peer.target,
    ),
    "http": HonestStore(
        lambda url: {"type": "http", "url": url, "headers.Authorization": "Bearer s3cr3t-of-tests"},
        honest(CONTENT, {"ETag": f'"{ETAG}"'}),
        honest(CONTENT, {"ETag": f'"{ETAG}"'}),
        lambda peer: peer.headers.get("range") == "bytes=0-0",
    ),
}  # fmt: skip
