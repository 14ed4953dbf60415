"""The pass that checks a document reads a listing, too: every field as botocore does, or none, and then botocore is asked."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any
from urllib.parse import quote
from xml.parsers.expat import ExpatError, XMLParserType

import botocore.session
import pytest
from botocore.parsers import ResponseParserError, ResponseParserFactory
from hypothesis import event, given, settings
from hypothesis import strategies as st

from adapter.storage.stores.clients import Clients, Means
from adapter.storage.stores.s3 import client as s3_client
from adapter.storage.stores.s3.rows import read_document
from adapter.storage.stores.table import BUCKETS
from adapter.workers import Stop
from tests.fakes.hell import Hell, answering
from tests.unit.storage.beds import make_config

SHAPE = botocore.session.get_session().get_service_model("s3").operation_model("ListObjectsV2").output_shape
FIELDS = {"IsTruncated", "Prefix", "Delimiter", "StartAfter", "EncodingType", "NextContinuationToken", "MaxKeys", "KeyCount"}
FIELDS_OF_ROWS = {"Contents": {"Key", "ETag", "Size", "ChecksumAlgorithm", "ChecksumType"}, "CommonPrefixes": {"Prefix"}}


def as_botocore(document: bytes) -> dict[str, Any]:
    """What it makes of the fields that are read. Raises what it raises."""
    factory = ResponseParserFactory()
    factory.set_parser_defaults(timestamp_parser=str)
    parsed = factory.create_parser("rest-xml").parse({"body": document, "headers": {}, "status_code": 200}, SHAPE)
    found = {name: value for name, value in parsed.items() if name in FIELDS}
    for rows, fields in FIELDS_OF_ROWS.items():
        if rows in parsed:
            found[rows] = [{name: value for name, value in row.items() if name in fields} for row in parsed[rows]]
    return found


def check_is_botocores(document: bytes) -> dict[str, Any] | None:
    try:
        found = read_document(document)
    except ExpatError:
        event("no XML")
        with pytest.raises(ResponseParserError):
            as_botocore(document)
        return None
    if found is not None:
        assert found == as_botocore(document)
    event("left to botocore" if found is None else "read")
    return found


def element(name: str, inner: str) -> str:
    return f"<{name}>{inner}</{name}>"


escaped = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(
    lambda text: "".join(letter if letter.isalnum() or letter in "/._- " else f"&#{ord(letter)};" for letter in text)
)
lines = st.sampled_from(["", "\n", "  ", "\r\n\t"])
good_texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"], exclude_characters="<>&\r"), max_size=30
) | st.sampled_from(
    ["", "m/a&amp;b", "&quot;v1&quot;", "&#xe9;&#x1f4a3;", "<![CDATA[a<b]]>", "a<![CDATA[]]>b", "]]", " m ", "\n", "&#10;", "é"]
)
good_rows = st.builds(
    lambda key, etag, size, sums, others, space: element(
        "Contents",
        space.join([element("Key", key), *others, element("ETag", etag), element("Size", str(size)), *sums]) + space,
    ),
    good_texts,
    good_texts,
    st.integers(-5, 2**70),
    st.lists(st.sampled_from([element("ChecksumAlgorithm", "CRC32"), element("ChecksumAlgorithm", "SHA256")]), max_size=2),
    st.lists(
        st.sampled_from(
            [
                element("LastModified", "2026"),
                element("Owner", "<ID>x</ID><Key>y</Key><Contents><Key>z</Key></Contents>"),
                "<StorageClass/>",
            ]
        ),
        max_size=2,
        unique=True,
    ),
    lines,
)
good_folders = good_texts.map(lambda text: element("CommonPrefixes", element("Prefix", text)))
heads = st.sampled_from(["", '<?xml version="1.0" encoding="UTF-8"?>\n', '<?xml version="1.0" encoding="ISO-8859-1"?>'])
spaces = st.sampled_from(
    ["", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"', " xmlns='http://s3.amazonaws.com/doc/2006-03-01'", ' xmlns=""']
)
ends = st.sampled_from(
    [
        "<IsTruncated>false</IsTruncated>",
        "<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>",
        "<Name>b</Name><Prefix>m</Prefix><Delimiter>/</Delimiter>"
        "<KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><MaxKeys> 9 </MaxKeys>",
    ]
)


@settings(deadline=None)
@given(head=heads, space=spaces, end=ends, rows=st.lists(good_rows | good_folders, max_size=6), between=lines)
def test_a_listing_as_servers_send_it_is_read(head: str, space: str, end: str, rows: list[str], between: str) -> None:
    """Namespaces, spaces between elements, CDATA, references, elements that nobody reads, none, one and many rows."""
    document = f"{head}<ListBucketResult{space}>{between.join([*rows, end])}</ListBucketResult>".encode()
    assert check_is_botocores(document) is not None


NAMES = [
    *FIELDS,
    *FIELDS_OF_ROWS,
    "Key",
    "ETag",
    "Size",
    "ChecksumAlgorithm",
    "ChecksumType",
    "Owner",
    "Error",
    "ListBucketResult",
    "p:Key",
]
ATTRIBUTES = [
    "",
    ' xmlns="urn:x"',
    ' xmlns="a&#10;b"',
    ' xmlns:p="urn:p"',
    ' p:a="1"',
    ' type="x"',
    ' xmlns="http://www.w3.org/2000/xmlns/"',
]
PIECES = [
    "true",
    "false",
    " true ",
    "12",
    "-1",
    "x",
    "<!-- c -->",
    "<?pi x?>",
    "&#0;",
    "&x;",
    "&#1;",
    "\x01",
    "\ufffe",
    "<a/>",
    "<![CDATA[x]]>",
    "1_0",
    "٣",
]
leaves = st.sampled_from(PIECES) | good_texts | escaped
nodes = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda name, attribute, content: f"<{name}{attribute}>{''.join(content)}</{name}>",
        st.sampled_from(NAMES),
        st.sampled_from(["", "", "", "", *ATTRIBUTES]),
        st.lists(inner, max_size=3),
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    root=st.sampled_from(["ListBucketResult"] * 6 + ["Error", "x", "p:ListBucketResult"]),
    content=st.lists(nodes | good_rows | ends, max_size=5),
)
def test_any_document_is_read_as_botocore_does_or_not_at_all(root: str, content: list[str]) -> None:
    check_is_botocores(f"<{root}>{''.join(content)}</{root}>".encode())


ODD = {
    "another document": "<Error><Code>x</Code></Error>",
    "a prefix": '<p:ListBucketResult xmlns:p="urn:p"></p:ListBucketResult>',
    "a prefix that nobody declares": "<ListBucketResult><p:x/></ListBucketResult>",
    "an attribute": '<ListBucketResult><Contents a="b"/></ListBucketResult>',
    "a comment in a key": "<ListBucketResult><Contents><Key>a<!-- -->b</Key></Contents></ListBucketResult>",
    "a processing instruction in a key": "<ListBucketResult><Contents><Key>a<?x?>b</Key></Contents></ListBucketResult>",
    "an element in a key": "<ListBucketResult><Contents><Key>a<b/></Key></Contents></ListBucketResult>",
    "a key twice": "<ListBucketResult><Contents><Key>a</Key><Key>a</Key></Contents></ListBucketResult>",
    "an end twice": "<ListBucketResult><IsTruncated>true</IsTruncated><IsTruncated>false</IsTruncated></ListBucketResult>",
    "an end in spaces": "<ListBucketResult><IsTruncated> true </IsTruncated></ListBucketResult>",
    "an end of nothing": "<ListBucketResult><IsTruncated/></ListBucketResult>",
    "a size that is a word": "<ListBucketResult><Contents><Size>x</Size></Contents></ListBucketResult>",
    "a count that is a word": "<ListBucketResult><KeyCount>x</KeyCount></ListBucketResult>",
    "a size of 5,000 digits": f"<ListBucketResult><Contents><Size>{'9' * 5000}</Size></Contents></ListBucketResult>",
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_left_to_botocore(name: str) -> None:
    assert read_document(ODD[name].encode()) is None


@pytest.mark.parametrize("document", [b"<ListBucketResult/>", b"<x/>", b"<ListBucketResult>"])
def test_nothing_of_a_document_waits_for_the_garbage_collector(document: bytes) -> None:
    """A parser and its handlers hold each other, and a page has up to four MiB."""
    gc.collect()
    gc.disable()
    try:
        with suppress(ExpatError):
            read_document(document)
        assert not any(isinstance(each, XMLParserType) for each in gc.get_objects())
    finally:
        gc.enable()


def page_of(keys: list[str]) -> list[str]:
    """The keys of a page of these keys, sent in URL encoding."""
    rows = "".join(f"<Contents><Key>{quote(key)}</Key><Size>1</Size></Contents>" for key in keys)
    body = f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()
    values = {"type": "s3", "bucket": "b", "region": "r", "access_key_id": "AKID", "secret_access_key": "secret"}
    with Hell(answering(200, {"Content-Type": "application/xml", "Content-Length": len(body)}, body)) as server:
        clients = Clients(BUCKETS, Means(max_connections=1))
        page = clients.bucket(make_config(values | {"endpoint_url": server.url}), Stop()).list_page("m", Stop())
        clients.close()
    return [stored.key for stored in page.objects]


ODD_KEYS = [f"m/{chr(code)}" for code in [*range(0x300), 0x2028, 0xE000, 0xFFFD, 0x1F4A3]] + ["m/a+b", "m/%41", "m/a b", "m/&amp;"]


@pytest.mark.parametrize("count", [0, 1, len(ODD_KEYS)])
def test_keys_come_as_they_are_stored(count: int) -> None:
    """Every letter that needs an encoding; a listing of nothing, of one row, of many."""
    assert page_of(ODD_KEYS[:count]) == ODD_KEYS[:count]


def test_a_listing_is_passed_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore gets nothing to parse; of an odd one, everything."""

    def refuse(*_: object) -> None:
        raise AssertionError("botocore has parsed it")

    with monkeypatch.context() as patched:
        patched.setattr("botocore.parsers.ETree.XMLParser", refuse)  # of its handlers, too: they share the module
        assert page_of(["m/a"]) == ["m/a"]
    monkeypatch.setattr(s3_client, "check_document", lambda body: None)
    assert page_of(["m/a"]) == ["m/a"]
