from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.delivery.answer import MEMBER_LIMIT, AnswerReader, UnreadableAnswer

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-A: 1\r\nx-a: 2 \r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nlate: 1\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + PLAIN


def read(*pieces: bytes, limit: int = 100, bodiless: bool = False) -> AnswerReader:
    reader = AnswerReader(limit)
    reader.begin(bodiless=bodiless)
    for piece in pieces:
        if reader.feed(piece):
            break
    return reader


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, INTERIM])
@given(data=st.data())
def test_an_answer_reads_the_same_however_it_is_cut(data: st.DataObject, answer: bytes) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(answer) - 1))))
    pieces = [answer[start:end] for start, end in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    reader, whole = read(*pieces), read(answer)
    assert reader.complete
    assert reader.reusable
    assert (reader.status, reader.result()) == (whole.status, whole.result())
    assert reader.result()[1] == b"hello"


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_fail_in_another_way(data: bytes) -> None:
    reader = AnswerReader(50)
    try:
        if reader.feed(b"HTTP/1.1 200 OK\r\n" + data) or reader.end():
            reader.result()
    except UnreadableAnswer:
        pass


def test_repeated_headers_are_joined_and_names_are_lower_case() -> None:
    assert read(PLAIN).result()[0] == {"content-type": "text/plain", "x-a": "1, 2", "content-length": "5"}


def test_interim_headers_and_trailers_are_not_headers() -> None:
    assert "link" not in read(INTERIM).result()[0]
    assert "late" not in read(CHUNKED).result()[0]


def test_one_reader_reads_answers_in_a_row() -> None:
    reader = AnswerReader(100)
    for answer in (PLAIN, CHUNKED, INTERIM, PLAIN):
        reader.begin(bodiless=False)
        assert reader.feed(answer)
        assert reader.result()[1] == b"hello"


@pytest.mark.parametrize("surplus", [b"H", b"HTTP/1.1 200 OK\r\n\r\n", b"\0", PLAIN])
def test_bytes_behind_an_answer_spoil_the_connection_and_not_the_answer(surplus: bytes) -> None:
    reader = read(PLAIN + surplus)
    assert reader.complete
    assert reader.result()[1] == b"hello"
    assert not reader.reusable


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n"]
)
def test_some_statuses_have_no_body(head: bytes) -> None:
    reader = read(head)
    assert reader.complete
    assert reader.reusable


def test_the_answer_to_head_ends_with_its_headers() -> None:
    reader = read(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n", bodiless=True)
    assert reader.complete
    assert reader.result()[1] == b""


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_a_peer_that_closes_is_not_reused(head: bytes) -> None:
    reader = read(head)
    assert reader.complete
    assert not reader.reusable


def test_a_body_without_length_ends_with_the_connection() -> None:
    reader = read(b"HTTP/1.1 200 OK\r\n\r\nhello")
    assert not reader.complete
    assert reader.end()
    assert reader.result()[1] == b"hello"


@pytest.mark.parametrize("answer", [PLAIN[:-1], CHUNKED[:-2], PLAIN[:20], b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_the_end_of_the_connection_does_not_complete_a_part(answer: bytes) -> None:
    assert not read(answer).end()


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x01",
        b"SSH-2.0-OpenSSH\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 99 Low\r\n\r\n",
        b"HTTP/1.1 600 High\r\n\r\n",
        b"HTTP/1.1 999 High\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 17,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
        b"HTTP/1.1 200 " + b"y" * 70_000,
    ],
)
def test_what_is_not_an_answer_is_unreadable(answer: bytes) -> None:
    with pytest.raises(UnreadableAnswer, match=r"^Expected .*, got "):
        read(answer)


def test_a_long_body_is_cut_and_the_status_counts() -> None:
    reader = read(b"HTTP/1.1 200 OK\r\ncontent-length: 101\r\n\r\n" + b"x" * 101)
    assert reader.complete
    assert reader.truncated
    assert not reader.reusable
    assert reader.status == 200
    assert reader.result()[1] == b"x" * 100
    assert not read(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" + b"x" * 100).truncated


def test_endless_trailers_are_cut_and_the_status_counts() -> None:
    reader = read(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", *[b"x: " + b"y" * 1000 + b"\r\n"] * 100
    )
    assert reader.complete
    assert reader.truncated


RAW_DEFLATE = zlib.compressobj(9, zlib.DEFLATED, -15)
RAW = RAW_DEFLATE.compress(b"hello") + RAW_DEFLATE.flush()


def packed(encoding: str, body: bytes, limit: int = 100) -> AnswerReader:
    return read(
        b"HTTP/1.1 200 OK\r\ncontent-encoding: %s\r\ncontent-length: %d\r\n\r\n" % (encoding.encode(), len(body)),
        body,
        limit=limit,
    )


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b"hello", mtime=0)),
        ("X-Gzip", gzip.compress(b"hel", mtime=0) + gzip.compress(b"lo", mtime=0)),
        ("deflate", zlib.compress(b"hello")),
        ("deflate", RAW),
        ("identity", b"hello"),
    ],
)
def test_a_compressed_body_is_unpacked(encoding: str, body: bytes) -> None:
    reader = packed(encoding, body)
    assert reader.result()[1] == b"hello"
    assert not reader.truncated


@pytest.mark.parametrize("size", [101, 50_000_000])
def test_a_bomb_is_unpacked_to_the_bound(size: int) -> None:
    reader = packed("gzip", gzip.compress(bytes(size)), limit=100_000 if size > 101 else 100)
    body = reader.result()[1]
    assert len(body) == (100_000 if size > 101 else 100)
    assert reader.truncated


def test_a_compressed_body_over_the_bound_gives_what_it_holds() -> None:
    noise = bytes(range(256)) * 4
    reader = packed("gzip", gzip.compress(noise, compresslevel=0), limit=500)
    assert reader.result()[1] == noise[: len(reader.result()[1])] != b""
    assert reader.truncated


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", b"hello"),
        ("gzip", gzip.compress(b"hello", mtime=0)[:-1]),
        ("deflate", b"\xff\xff\xff"),
        ("br", b"hello"),
        ("gzip, gzip", gzip.compress(b"hello", mtime=0)),
    ],
)
def test_a_body_that_cannot_be_unpacked_is_unreadable(encoding: str, body: bytes) -> None:
    with pytest.raises(UnreadableAnswer, match=r"^Expected .*, got "):
        packed(encoding, body).result()


def test_members_of_a_compressed_body_cost_no_more_than_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    unpacker = zlib.decompressobj

    def counted(window_bits: int) -> object:
        nonlocal made
        made += 1
        return unpacker(window_bits)

    monkeypatch.setattr("mainspring.delivery.answer.zlib.decompressobj", counted)
    with pytest.raises(UnreadableAnswer, match="members"):
        packed("gzip", gzip.compress(b"") * 5_000, limit=1_000_000).result()
    assert made == MEMBER_LIMIT
    assert packed("gzip", gzip.compress(b"x") * MEMBER_LIMIT, limit=1_000_000).result()[1] == b"x" * MEMBER_LIMIT


def test_a_transfer_encoding_other_than_chunked_is_unreadable() -> None:
    reader = read(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
    with pytest.raises(UnreadableAnswer, match="chunked"):
        reader.result()


@pytest.mark.parametrize("header", [b"content-encoding", b"transfer-encoding"])
def test_what_a_receiver_says_of_its_encoding_is_repeated_in_few_words(header: bytes) -> None:
    said = b"\x9b2J" + b"x" * 60_000
    head = b"HTTP/1.1 200 OK\r\n%b: %b\r\nconnection: close\r\n\r\nbody" % (header, said)
    reader = read(head)
    reader.end()
    with pytest.raises(UnreadableAnswer) as raised:
        reader.result()
    assert len(str(raised.value)) < 300
    assert str(raised.value).isprintable()


def test_the_words_of_the_parser_reach_nobody() -> None:
    with pytest.raises(UnreadableAnswer, match=r"^Expected an HTTP/1.1 answer, got something else$"):
        read(b"garbage\r\n\r\n")
    with pytest.raises(UnreadableAnswer, match=r"^Expected gzip data, as the answer declared, got something else$"):
        read(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello").result()
