"""Answers to a listing that are none: the server's fault, no memory, no row; and the largest answers that are one."""

from __future__ import annotations

import json
import sys

import pytest

from adapter.errors import AdapterError, SourceUnavailable
from adapter.workers import Stop
from tests.fakes.hell import Hell, endless_body
from tests.security import unmeasured
from tests.security.chosen import long_but
from tests.security.clouds import bucket_of, cloud, page
from tests.security.stores import CONTENT, ETAG, KEY, PAGES

NOT_THEIRS = r"gave an answer that is not (S3|Google|Azure)'s"
ROW = {"name": KEY, "size": str(len(CONTENT)), "generation": "7"}
MOST_MIB = 64
"""Above what an honest page of 1,000 names of 1 KiB takes."""
_BYTES = 4 * 1024 * 1024 - 70_000
"""As much as a page may have."""


def xml(rows: str) -> str:
    return f"<EnumerationResults><Blobs>{rows}</Blobs><NextMarker></NextMarker></EnumerationResults>"


def blob(name: str = KEY, size: str = "1", etag: str = ETAG) -> str:
    properties = f"<Etag>{etag}</Etag><Content-Length>{size}</Content-Length><BlobType>BlockBlob</BlobType>"
    return f"<Blob><Name>{name}</Name><Properties>{properties}</Properties></Blob>"


def items(**fields: object) -> str:
    return json.dumps({"items": [{**ROW, **fields}]})


def row(key="m/file", size=10, etag="v1"):
    return f"<Contents><Key>{key}</Key><Size>{size}</Size><ETag>{etag}</ETag></Contents>"


def listing(*rows, more=""):
    end = (
        f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>"
        if more
        else "<IsTruncated>false</IsTruncated>"
    )
    return f"<ListBucketResult>{''.join(rows)}{end}</ListBucketResult>"


NONSENSE = {
    "gcs": {
        "nothing": b"",
        "a text": b'"items"',
        "a list": b"[]",
        "a number": b"5",
        "null": b"null",
        "half": PAGES["gcs"][:-3].encode(),
        "deep": b"[" * 5_000,
        "deep objects": b'{"a":' * 5_000,
        "many lists": b"[" + b"[]," * 100_000 + b"[]]",
        "many strings": b"[" + b'"a",' * 100_000 + b'"a"]',
        "many numbers": b"[" + b"1.5," * 100_000 + b"1]",
        "a long number": b'{"items": ' + b"9" * 5_000 + b"}",
        "items that are a number": b'{"items": 5}',
        "items that are an object": b'{"items": {"a": 1}}',
        "items that are texts": b'{"items": ["a"]}',
        "a name that is a number": items(name=5),
        "no name": json.dumps({"items": [{"size": "1", "generation": "7"}]}).encode(),
        "an empty name": items(name=""),
        "a size that is a text": items(size="many"),
        "a size that is a list": items(size=[1]),
        "a size below nothing": items(size="-1"),
        "a size beyond all": items(size=str(10**30)),
        "a generation that is a text": items(generation="x"),
        "no generation": json.dumps({"items": [{"name": KEY, "size": "1"}]}).encode(),
        "more rows than asked for": json.dumps({"items": [ROW] * 1001}).encode(),
        "folders that are numbers": b'{"prefixes": [1, 2]}',
        "folders that are a number": b'{"prefixes": 1}',
        "a token that is a number": b'{"nextPageToken": 5}',
        "not a text": b"\xff\xfe\x00",
    },
    "azure": {
        "nothing": b"",
        "a text": b"hello",
        "half": PAGES["azure"][:-9].encode(),
        "deep": b"<a>" * 5_000,
        "a declaration": b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>',
        "many elements": b"<x>" + b"<a/>" * 200_000 + b"</x>",
        "many attributes": b"<x " + b" ".join(b'a%d=""' % number for number in range(150_000)) + b"/>",
        "no name": xml(blob().replace(f"<Name>{KEY}</Name>", "")),
        "a size that is a text": xml(blob(size="many")),
        "a size below nothing": xml(blob(size="-1")),
        "a size beyond all": xml(blob(size=str(10**30))),
        "a long size": xml(blob(size="9" * 5_000)),
        "no version": xml(blob(etag="")),
        "more rows than asked for": xml(blob() * 1001),
        "not a text": b"\xff\xfe\x00",
    },
    "s3": {
        "a size that is a word": listing(row(size="many")),
        "a size that is negative": listing(row(size=-1)),
        "a size that is a float": listing(row(size="1.5")),
        "a size beyond all disks": listing(row(size=10**19)),
        "a size of 5,000 digits": listing(row(size="9" * 5000)),
        "no size": listing("<Contents><Key>m/a</Key></Contents>"),
        "no key": listing("<Contents><Size>1</Size></Contents>"),
        "no key, encoded": listing("<EncodingType>url</EncodingType><Contents><Size>1</Size></Contents>"),
        "no prefix": listing("<CommonPrefixes></CommonPrefixes>"),
        "a key of 1,025 bytes": listing(row("m/" + "k" * 1023)),
        "a key of 1,026 bytes in few letters": listing(row("m/" + "ü" * 512)),
        "a version of 2,000 letters": listing(row(etag="v" * 2000)),
        "a token of 10,000 letters": listing(row(), more="t" * 10_000),
        "1,001 rows": listing(*(row(f"m/{number}") for number in range(1001))),
        "1,001 folders": listing(*(f"<CommonPrefixes><Prefix>m/{number}/</Prefix></CommonPrefixes>" for number in range(1001))),
        "neither the end nor a part": "<ListBucketResult><IsTruncated>maybe</IsTruncated></ListBucketResult>",
        "a part, in spaces": "<ListBucketResult><IsTruncated> true </IsTruncated></ListBucketResult>",
        "nothing": "",
        "bytes that are no text": b"<ListBucketResult>\xff\xfe<IsTruncated>false</IsTruncated></ListBucketResult>",
        "UTF-16": listing(row()).encode("utf-16"),
        "JSON": '{"IsTruncated": false}',
        "a page for people": "<!DOCTYPE html><html><body>Welcome</body></html>",
        "an unclosed document": listing(row())[:-10],
        "an unknown entity": listing(row("&boom;")),
        "a key with a NUL": listing(row("m/&#0;")),
        "rows in rows": listing("<Contents>" * 50 + "</Contents>" * 50),
    },
}


@pytest.mark.parametrize("by_folder", [False, True])
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, bodies in NONSENSE.items() for name in bodies])
def test_a_listing_that_is_none_is_the_servers_fault(kind: str, name: str, by_folder: bool) -> None:
    """Never an error of ours, never a row that is none, never an empty or a smaller bucket."""
    with Hell(page(kind, NONSENSE[kind][name])) as server, pytest.raises(SourceUnavailable, match=NOT_THEIRS) as caught:
        bucket_of(kind, server.url).list_page("m/", Stop(), by_folder=by_folder)
    assert type(caught.value) is SourceUnavailable


def test_a_page_of_the_longest_names_is_a_page() -> None:
    """1,000 names of 1,024 bytes, full of what JSON and XML must escape."""
    names = [f"{number:04}" + '[{"<&,\\' * 146 for number in range(1000)]
    escaped = "".join(blob(name.replace("&", "&amp;").replace("<", "&lt;")) for name in names)
    for kind, body in (("gcs", json.dumps({"items": [{**ROW, "name": name} for name in names]})), ("azure", xml(escaped))):
        with Hell(cloud(kind, listing=page(kind, body))) as server:
            assert [row.key for row in bucket_of(kind, server.url).list_page("", Stop()).objects] == names


def _filled(begin: bytes, some: bytes, end: bytes = b"") -> bytes:
    return begin + some * ((_BYTES - len(begin) - len(end)) // len(some)) + end


def entities():
    layers = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 50}">' for n in range(1, 6))
    return f'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY e0 "{"x" * 50}">{layers}]>' + listing(row("&e5;"))


NAMES = [f"{number:04}" + "a" * 1020 for number in range(1000)]
HONEST = {
    "gcs": lambda: json.dumps({"items": [{**ROW, "name": name} for name in NAMES]}),
    "azure": lambda: xml("".join(map(blob, NAMES))),
    "s3": lambda: listing(*map(row, NAMES)),
}
BODIES = {
    "gcs": {
        "lists": lambda: _filled(b"[", b"[],", b"[]]"),
        "objects": lambda: _filled(b"[", b"{},", b"{}]"),
        "deep": lambda: _filled(b"", b"["),
        "strings": lambda: _filled(b"[", b'"ab",', b'""]'),
        "one string": lambda: _filled(b'{"a": "', b"\\u0041", b'"}'),
        "a wide string": lambda: _filled(b'{"a": "', b"a", '\U0001f600"}'.encode()),
        "numbers": lambda: _filled(b"[", b"1.5,", b"1]"),
    },
    "azure": {
        "elements": lambda: _filled(b"<x>", b"<a/>", b"</x>"),
        "deep": lambda: _filled(b"", b"<a>"),
        "attributes": lambda: b"<x " + b" ".join(b'a%d=""' % number for number in range(_BYTES // 12)) + b"/>",
        "as many elements as a page has": lambda: b"<x>" + b"<a/>" * 120_000 + b"</x>",
        "one text": lambda: _filled(b"<x>", b"a", b"</x>"),
        "a wide text": lambda: _filled(b"<x>", b"a", "\U0001f600</x>".encode()),
        "entities": lambda: _filled(b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaaaaaaaa">]><x>', b"&a;", b"</x>"),
    },
    "s3": {
        "a million elements": lambda: "<ListBucketResult>" + "<a/>" * 1_000_000 + "</ListBucketResult>",
        "a million attributes": lambda: "<ListBucketResult " + " ".join(f'a{n}=""' for n in range(400_000)) + "/>",
        "attributes behind a bracket": lambda: "<ListBucketResult " + " ".join(f"a{n}='>'" for n in range(300_000)) + "/>",
        "attributes in many elements": lambda: (
            "<ListBucketResult>"
            + "".join(f"<a {' '.join(f'b{n}=' + chr(34) * 2 for n in range(60))}/>" for _ in range(8000))
            + "</ListBucketResult>"
        ),
        "a deep tree": lambda: "<a>" * 900_000,
        "entities": entities,
        "entities in UTF-16": lambda: entities().encode("utf-16"),
        "depth": lambda: f"<ListBucketResult>{'<a>' * 30_000}{'</a>' * 30_000}<IsTruncated>false</IsTruncated></ListBucketResult>",
        "one text of large letters": lambda: "<ListBucketResult><Name>" + "\U0001f4a3" + "a" * 4_000_000 + "</Name></ListBucketResult>",
        "rows of large letters": lambda: listing(*(row("m/\U0001f4a3" + "a" * 1000 + str(n)) for n in range(1000))),
    },
}
HARMLESS = ("rows of large letters", "depth", "one string", "a wide string")
"""What may be in a page, or beside what is read of it."""
ENDLESS = {"an endless listing": 200, "an endless error": 503}
CASES = [(kind, name) for kind, bodies in BODIES.items() for name in bodies] + [("s3", name) for name in ENDLESS]


def measure() -> None:
    """Print how many MiB the process had at most, above what it had before; runs as a process of its own."""
    kind, name = sys.argv[1:]
    hostile = endless_body(ENDLESS[name]) if name in ENDLESS else page(kind, BODIES[kind][name]())
    for behaviour in (page(kind, HONEST[kind]()), hostile):
        with Hell(behaviour) as server:
            bucket = bucket_of(kind, server.url)
            before = unmeasured.forget_peak()
            try:
                bucket.list_page("", Stop())
                assert behaviour is not hostile or name in HARMLESS
            except AdapterError as error:
                assert type(error) is SourceUnavailable and name not in HARMLESS, error.text
            print(unmeasured.mib("VmHWM") - before)


HERE = (("gcs", "numbers"), ("azure", "entities"), ("s3", "a million attributes"), ("s3", "entities"))


@pytest.mark.parametrize(("kind", "name"), long_but(CASES, *HERE))
def test_a_listing_takes_no_more_than_an_honest_one_and_a_bound(kind: str, name: str) -> None:
    """Whatever a parser would make of it: a document of less than 4 MiB can take 250 MiB there, an endless one all that there is."""
    done = unmeasured.run("-c", "from tests.security.test_listings_that_are_none import measure; measure()", kind, name)
    assert done.returncode == 0, done.stderr
    honest, peak = (float(line) for line in done.stdout.split())
    print(f"{kind} {name}: {peak:.1f} MiB; honest: {honest:.1f} MiB")
    assert peak < honest + MOST_MIB
