"""Bodies that are not strict JSON, and payloads inside a body that is."""

from __future__ import annotations

GOOD = b'{"timerId":"t","delaySeconds":1,"callbackUrl":"http://a.example/","payload":%b}'


def payload(text: bytes) -> bytes:
    return GOOD.replace(b"%b", text)


NOT_STRICT = {
    "nothing": b"",
    "space": b"  ",
    "not json": b"hello",
    "array": b"[]",
    "string": b'"x"',
    "number": b"1",
    "null": b"null",
    "byte order mark": b"\xef\xbb\xbf{}",
    "utf-16": '{"a":1}'.encode("utf-16"),
    "trailing garbage": payload(b"1") + b"x",
    "two objects": payload(b"1") + b"{}",
    "trailing comma": payload(b"[1,]"),
    "single quotes": payload(b"'x'"),
    "comment": payload(b"1 /* one */"),
    "leading zero": payload(b"01"),
    "plus": payload(b"+1"),
    "bare point": payload(b"1."),
    "hex": payload(b"0x1"),
    "nan": payload(b"NaN"),
    "infinity": payload(b"[Infinity]"),
    "minus infinity": payload(b"-Infinity"),
    "1e400": payload(b"[1e400]"),
    "-1e400": payload(b"-1e400"),
    "2**63": payload(b"9223372036854775808"),
    "-2**63-1": payload(b"[-9223372036854775809]"),
    "2**64": payload(b"18446744073709551616"),
    "5000 digits": payload(b"9" * 5000),
    "5000 decimals": payload(b"0." + b"1" * 5000),
    "101 digits": payload(b"0." + b"1" * 99 + b"e1"),
    "control character": payload(b'"\x01"'),
    "raw nul": payload(b'"\x00"'),
    "escaped nul": payload(b'"a\\u0000"'),
    "nul after backslash": payload(b'"\\\\\\u0000"'),
    "nul in a key": payload(b'{"\\u0000":1}'),
    "lone high surrogate": payload(b'"\\ud800"'),
    "lone low surrogate": payload(b'"x\\udc00y"'),
    "swapped surrogates": payload(b'"\\udc00\\ud800"'),
    "surrogate in utf-8": payload(b'"\xed\xa0\x80"'),
    "invalid utf-8": payload(b'"\xff"'),
    "overlong utf-8": payload(b'"\xc0\x80"'),
    "bad escape": payload(b'"\\x41"'),
    "repeated key": b'{"timerId":"a","timerId":"a"}',
    "repeated in payload": payload(b'{"a":1,"b":[{"c":1,"c":2}]}'),
    "repeated by escape": payload(b'{"a":1,"\\u0061":2}'),
    "repeated with quotes": payload(b'{"\\"":1,"\\"":2}'),
    "repeated with backslashes": payload(b'{"\\\\":"\\"","\\\\":"\\\\\\""}'),
    "repeated empty": payload(b'{"":1,"":2}'),
    "too deep": payload(b"[" * 32 + b"]" * 32),
    "too deep objects": payload(b'{"a":' * 32 + b"1" + b"}" * 32),
    "very deep": payload(b"[" * 100_000 + b"]" * 100_000),
    "open forever": payload(b"[" * 100_000),
    "cut": payload(b'{"a":'),
}
