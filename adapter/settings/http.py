"""What all HTTP fronts share: address, TLS, bounds, who may call what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adapter.units import ADDRESS, BYTES, PATH, SECRET, SECRET_PATH, THREADS, Secret, setting


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """What all HTTP fronts share."""

    address: str = setting(ADDRESS, "HTTP_ADDRESS", "0.0.0.0", "Address that the HTTP fronts listen on")  # noqa: S104 - called from outside the pod
    max_body_bytes: int = setting(
        BYTES,
        "HTTP_MAX_BODY_BYTES",
        "64Mi",
        "Longest body of a request, counted after it was decompressed; a longer one is refused with 413",
    )
    bodies_bytes: int = setting(
        BYTES,
        "HTTP_BODIES_BYTES",
        "384Mi",
        "Memory that the bodies of all requests may take at once, with what parsing makes of them; a body for which there is none now is "
        "refused with 503, one that alone takes more with 413. Bodies of up to 256 KiB are not counted",
    )
    max_connections: int = setting(THREADS, "HTTP_MAX_CONNECTIONS", "1024", "Connections to one HTTP front at a time")
    max_requests: int = setting(
        THREADS, "HTTP_MAX_REQUESTS", "256", "Requests of one HTTP front that are worked on at a time; one more is refused with 503"
    )
    tls_cert: Path | None = setting(
        PATH, "HTTP_TLS_CERT", None, "Certificate chain (PEM): the HTTP fronts speak HTTPS; needs `HTTP_TLS_KEY`"
    )
    tls_key: Path | None = setting(PATH, "HTTP_TLS_KEY", None, "Its private key (PEM)")
    restricted_api: Secret | None = setting(
        SECRET,
        "HTTP_RESTRICTED_API",
        None,
        "Who may call what, as `model-repository,model-config:X-Admin=secret`: without this header these calls are refused with 403; "
        "several of them are joined by `;`",
    )
    restricted_api_file: Path | None = setting(
        SECRET_PATH, "HTTP_RESTRICTED_API_FILE", None, "File that holds it, instead of `HTTP_RESTRICTED_API`; read at start"
    )

    def problems(self) -> Iterator[str]:
        """Half of a key pair."""
        if (self.tls_cert is None) != (self.tls_key is None):
            missing, given = ("HTTP_TLS_KEY", "HTTP_TLS_CERT") if self.tls_cert else ("HTTP_TLS_CERT", "HTTP_TLS_KEY")
            yield f"{given} is set, but {missing} is not"
