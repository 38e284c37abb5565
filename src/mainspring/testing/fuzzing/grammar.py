"""HTTP messages that are nearly right: whatever one part says, the next may contradict it."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Sequence
from typing import Final

HTTP_TOKENS: Final = (
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/0.9",
    b"HTTP/2.0",
    b"\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 18446744073709551616\r\n",
    b"Host: localhost\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"\r\n folded",
)
_LENGTHS: Final = (b"0", b"1", b"-1", b"+5", b"5, 5", b"0x5", b"99999999999999999999", b"1e3", b"", b"5 5", b"1000001")
_TRANSFERS: Final = (b"chunked", b"Chunked", b"chunked, chunked", b"gzip, chunked", b"identity", b"chunked;q=1", b" ")
_SIZES: Final = (b"-1", b"0x5", b"ffffffffffffffff", b"10000000000000000", b"zz", b"", b" 5", b"5 ", b"00000000000005")
_BOMBS: Final = (
    gzip.compress(b"", mtime=0) * 5_000,
    gzip.compress(bytes(1_000), mtime=0),
    gzip.compress(bytes(5_000_000), mtime=0),
    zlib.compress(bytes(5_000_000)),
)


def headers(dice: random.Random, known: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Some of the known ones, in any order; now and then one twice, one of many bytes, or one that is not a header."""
    chosen = [header for header in known if dice.random() < 0.97]
    dice.shuffle(chosen)
    if chosen and dice.random() < 0.05:
        chosen.append(dice.choice(chosen))
    if dice.random() < 0.05:
        chosen.append((b"x-many", b"y" * dice.choice((1_000, 17_000, 70_000))))
    if dice.random() < 0.05:
        chosen += [(b"x-%d" % number, b"") for number in range(dice.choice((20, 101, 2_000)))]
    lines = [dice.choice((b"%b: %b\r\n", b"%b:%b\r\n", b"%b:\t%b \r\n")) % header for header in chosen]
    if dice.random() < 0.05:
        lines.insert(
            dice.randint(0, len(lines)), dice.choice((b"no colon\r\n", b": no name\r\n", b"a b: c\r\n", b"d: e\n"))
        )
    return b"".join(lines)


def framed(dice: random.Random, body: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers that frame a body, and the body as they say, or as they do not."""
    kind = dice.random()
    if kind < 0.45:
        return [(b"Content-Length", b"%d" % len(body))], body
    if kind < 0.85:
        return [(b"Transfer-Encoding", b"chunked")], chunked(dice, body)
    if kind < 0.93:
        return [(b"Content-Length", dice.choice(_LENGTHS))], body
    lying = [(b"Transfer-Encoding", dice.choice(_TRANSFERS)), (b"Content-Length", dice.choice(_LENGTHS))]
    return lying, chunked(dice, body) if dice.random() < 0.5 else body


def chunked(dice: random.Random, body: bytes) -> bytes:
    """In chunks, some with extensions; with a trailer now and then; and sometimes one of a wrong size."""
    out: list[bytes] = []
    at = 0
    while at < len(body):
        piece = body[at : at + dice.choice((1, 7, 100, 5_000))]
        at += len(piece)
        size = b"%x" % len(piece) if dice.random() < 0.98 else dice.choice(_SIZES)
        extension = b"" if dice.random() < 0.9 else dice.choice((b";a=b", b";" + b"x" * 5_000, b'; q="\r"'))
        out.append(b"%b%b\r\n%b\r\n" % (size, extension, piece))
        if len(out) > 200:
            break
    trailer = b"" if dice.random() < 0.8 else b"authorization: Bearer x\r\n" * dice.choice((1, 5, 3_000))
    return b"".join(out) + b"0\r\n" + trailer + b"\r\n"


def packed(dice: random.Random, body: bytes) -> tuple[bytes, bytes]:
    """A content encoding, and the body in it, more or less."""
    kind = dice.choice((b"gzip", b"gzip", b"x-gzip", b"deflate", b"br", b"gzip, gzip", b"identity", b"\xff", b"GZIP"))
    form = dice.randrange(6)
    if form == 0:
        return kind, dice.choice(_BOMBS)
    if form == 1:
        return kind, gzip.compress(body[:1_000], mtime=0) * dice.choice((2, 64, 65, 2_000))
    if form == 2:
        return kind, zlib.compress(body)
    if form == 3:
        raw = zlib.compressobj(wbits=-15)
        return kind, raw.compress(body) + raw.flush()
    return kind, gzip.compress(body, mtime=0) if form == 4 else body
