"""A listing of S3 is read as botocore reads it, or refused."""

from __future__ import annotations

from typing import Any

import botocore.session
from botocore.compat import unquote_str
from botocore.parsers import ResponseParserFactory
from hypothesis import event, given, settings
from hypothesis import strategies as st

from adapter.errors import SourceUnavailable
from adapter.storage.bucket import Page
from adapter.storage.stores.cloud import NO_ANSWER
from adapter.storage.stores.s3 import S3Bucket, full_checksum

SHAPE = botocore.session.get_session().get_service_model("s3").operation_model("ListObjectsV2").output_shape


def as_botocore(document: bytes) -> dict[str, Any]:
    """What botocore makes of a page: rows, folders and where it goes on. Raises what botocore raises."""
    factory = ResponseParserFactory()
    factory.set_parser_defaults(timestamp_parser=str)
    page = factory.create_parser("rest-xml").parse({"body": document, "headers": {}, "status_code": 200}, SHAPE)
    decode = unquote_str if page.get("EncodingType") == "url" else str
    rows = [
        (decode(row["Key"]), row["Size"], row.get("ETag", ""), full_checksum(row.get("ChecksumAlgorithm", ()), row.get("ChecksumType")))
        for row in page.get("Contents", ())
    ]
    folders = tuple(decode(row["Prefix"]) for row in page.get("CommonPrefixes", ()))
    return {"rows": rows, "folders": folders, "next": page.get("NextContinuationToken") if page["IsTruncated"] else None}


def compared(document: bytes) -> Page | None:
    """The page, which is botocore's; None: it is refused."""
    try:
        page = S3Bucket.page_of(document)
    except (*NO_ANSWER, SourceUnavailable):
        event("refused")
        return None
    theirs = as_botocore(document)
    rows = [(key, size, etag.removeprefix("W/").strip('"'), checksum) for key, size, etag, checksum in theirs["rows"]]
    assert [(each.key, each.size_bytes, each.etag, each.checksum) for each in page.objects] == rows
    assert page.folders == theirs["folders"]
    assert page.next_token == theirs["next"]
    event("read")
    return page


def element(name: str, inner: str) -> str:
    return f"<{name}>{inner}</{name}>"


lines = st.sampled_from(["", "\n", "  ", "\r\n\t"])
TEXTS = ["", "m/a&amp;b", "&quot;v1&quot;", "&#xe9;&#x1f4a3;", "<![CDATA[a<b]]>", "a<![CDATA[]]>b", "]]", " m ", "\n", "&#10;", "é",
         "a<!-- c -->b"]  # fmt: skip
plain = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"], exclude_characters="<>&\r"), max_size=30)
texts = plain | st.sampled_from(TEXTS)
sums = st.lists(st.sampled_from([element("ChecksumAlgorithm", "CRC32"), element("ChecksumAlgorithm", "SHA256")]), max_size=2)
others = st.sampled_from(["", element("LastModified", "2026"), element("Owner", "<ID>x</ID><Key>y</Key>"), "<StorageClass/>"])
good_rows = st.builds(
    lambda key, etag, size, sums, other, kind, space: element(
        "Contents", space.join([element("Key", key), other, element("ETag", etag), element("Size", str(size)), *sums, kind]) + space
    ),
    texts,
    texts,
    st.integers(0, 2**63 - 1),
    sums,
    others,
    st.sampled_from(["", element("ChecksumType", "FULL_OBJECT"), element("ChecksumType", "COMPOSITE")]),
    lines,
)
good_folders = texts.map(lambda text: element("CommonPrefixes", element("Prefix", text)))
heads = st.sampled_from(["", '<?xml version="1.0" encoding="UTF-8"?>\n', "<!-- c -->"])
spaces = st.sampled_from(["", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"', " xmlns='http://s3.amazonaws.com/doc/2006-03-01'"])
ends = st.sampled_from([
    "<IsTruncated>false</IsTruncated>",
    "<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>",
    "<EncodingType>url</EncodingType><Name>b</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><MaxKeys> 9 </MaxKeys>",
])  # fmt: skip


@settings(deadline=None)
@given(head=heads, space=spaces, end=ends, rows=st.lists(good_rows | good_folders, max_size=6), between=lines)
def test_a_listing_as_servers_send_it_is_read(head: str, space: str, end: str, rows: list[str], between: str) -> None:
    """Namespaces, spaces between elements, CDATA, references, elements that are not wanted, none, one and many rows."""
    assert compared(f"{head}<ListBucketResult{space}>{between.join([*rows, end])}</ListBucketResult>".encode()) is not None


NAMES = ["IsTruncated", "EncodingType", "NextContinuationToken", "Contents", "CommonPrefixes", "Prefix", "Key", "ETag", "Size",
         "ChecksumAlgorithm", "ChecksumType", "Owner", "Error", "ListBucketResult", "p:Key"]  # fmt: skip
ATTRIBUTES = ["", "", "", "", ' xmlns="urn:x"', ' xmlns="a&#10;b"', ' xmlns:p="urn:p"', ' p:a="1"', ' type="x"']
PIECES = ["true", "false", "12", "-1", "x", "<!-- c -->", "<?pi x?>", "&#0;", "&x;", "&#1;", "\x01", "\ufffe", "<a/>", "1_0", "٣"]
nodes = st.recursive(
    st.sampled_from(PIECES) | texts,
    lambda inner: st.tuples(st.sampled_from(NAMES), st.sampled_from(ATTRIBUTES), st.lists(inner, min_size=1, max_size=3)).map(
        lambda found: f"<{found[0]}{found[1]}>{''.join(found[2])}</{found[0]}>"
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    root=st.sampled_from(["ListBucketResult"] * 6 + ["Error", "x", "p:ListBucketResult"]),
    content=st.lists(nodes | good_rows, max_size=5),
    end=ends,
)
def test_any_document_is_read_as_botocore_does_or_refused(root: str, content: list[str], end: str) -> None:
    compared(f"<{root}>{''.join(content)}{end}</{root}>".encode())
