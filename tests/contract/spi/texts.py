"""What every error text must be like, because ModelMesh stores it and shows it to users."""

MAX_WIRE_BYTES = 4096


def assert_is_fit_for_users(text: str) -> None:
    """One readable line, short enough to survive gRPC's percent-encoding."""
    assert text
    assert text == " ".join(text.split())
    assert text.isprintable(), ascii(text)
    assert wire_bytes(text) <= MAX_WIRE_BYTES


def wire_bytes(text: str) -> int:
    """Length of a grpc-message: every byte outside 0x20..0x7E, and '%', becomes three."""
    return sum(1 if 0x20 <= byte < 0x7F and byte != ord("%") else 3 for byte in text.encode())
