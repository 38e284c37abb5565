from __future__ import annotations

import asyncio
from ipaddress import ip_address

import pytest

from mainspring.delivery.address import why_not_public
from mainspring.delivery.guard import Guard
from mainspring.errors import ConfigError, InvalidInput, UnsafeTarget
from tests.delivery.resolver import Resolver

FORBIDDEN = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.254 100.100.100.200 127.0.0.1 127.255.255.254
168.63.129.16 169.254.169.254 169.254.0.1 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1
198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
[::] [::1] [::127.0.0.1] [::8.8.8.8] [::ffff:127.0.0.1] [::ffff:10.0.0.1] [::ffff:169.254.169.254] [::ffff:a9fe:a9fe]
[64:ff9b::a9fe:a9fe] [64:ff9b::10.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b:1::808:808] [2002:a9fe:a9fe::] [2002:7f00:1::]
[2001::1] [2001:0:7f00:1::] [2001:db8::1] [3fff::1] [100::1] [fc00::1] [fd00:ec2::254] [fe80::1] [fec0::1] [ff02::1]
[5f00::1] [4000::1] 127.1 127.0.1 2130706433 0x7f000001 0x7F.1 017700000001 0177.0.0.1 0x7f.0x0.0x0.0x1 0 0x0 0xa9fea9fe
2852039166 169.254.43518 127.0.0.1. 0x 10.1 192.168.257 localhost LOCALHOST localhost. a.localhost 00000000177.0.0.1
[0:0:0:0:0:ffff:7f00:0001] [0000:0000:0000:0000:0000:0000:0000:0001]
[2600::5efe:10.0.0.1] [2600::5efe:a00:1] [2600::200:5efe:10.0.0.1] [2600:1:2:3:200:5efe:127.0.0.1]
[2600::5efe:169.254.169.254] [2600::300:5efe:192.168.1.1] [2600::100:5efe:10.0.0.1] [fe80::5efe:8.8.8.8]
[::5efe:8.8.8.8] [2001:db8::5efe:8.8.8.8]
"""
PUBLIC = """
8.8.8.8 1.1.1.1 93.184.216.34 [2606:4700::1111] [64:ff9b::808:808] [::ffff:8.8.8.8] 134744072 8.8.2056
[2600::5efe:8.8.8.8] [2600::200:5efe:8.8.8.8] [2600::5eff:10.0.0.1] [2600::1:5efe:10.0.0.1]
"""


@pytest.mark.parametrize("host", FORBIDDEN.split())
def test_a_forbidden_address_is_refused_when_the_timer_is_made_in_every_spelling(host: str) -> None:
    with pytest.raises(UnsafeTarget, match="Expected a public address"):
        Guard().check_url(f"http://{host}/path")


@pytest.mark.parametrize(
    ("host", "remedy"),
    [
        ("10.1.2.3", "the setting allow_targets (--allow-target 10.1.2.3) opens it"),
        ("[fd00::1]", "the setting allow_targets (--allow-target fd00::1) opens it"),
        ("127.0.0.1", "the setting allow_loopback (--allow-loopback) opens it"),
        ("localhost", "the setting allow_loopback (--allow-loopback) opens it"),
        ("169.254.169.254", ""),
    ],
)
def test_a_refusal_says_how_to_open_an_address_that_a_receiver_may_have(host: str, remedy: str) -> None:
    with pytest.raises(UnsafeTarget) as refused:
        Guard().check_url(f"http://{host}/")
    assert refused.value.detail.partition("; ")[2] == remedy


@pytest.mark.parametrize("host", PUBLIC.split())
def test_a_public_address_passes(host: str) -> None:
    Guard().check_url(f"https://{host}/path")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/path",
        "//host/path",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "javascript:alert(1)",
        "http:example.com",
        "http:///path",
        "http://",
        "http://:80/",
        "http://example.com:/",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:999999/",
        "http://example.com:-1/",
        "http://example.com:80:80/",
        "http://example.com:\uff18\uff10/",
        "http://user@example.com/",
        "http://user:word@example.com/",
        "http://example.com@127.0.0.1/",
        "http://127.0.0.1#@example.com/",
        "http://example.com/#part",
        "http://example.com\\@127.0.0.1/",
        "http://example.com/a b",
        "http://example.com/a\tb",
        "http://example.com/\r\nx: y",
        "http://example.com/\n",
        "http://example.com/\0",
        " http://example.com/",
        "http://example.com/ ",
        "http://exa\u00admple.com/",
        "http://①②⑦.0.0.1/",
        "http://\uff11\uff12\uff17.0.0.1/",
        "http://127。0。0。1/",
        "http://münchen.example/",
        "http://example.com/ü",
        "http://%31%32%37.0.0.1/",
        "http://example..com/",
        "http://.example.com/",
        "http://-example.com/",
        "http://exa$mple.com/",
        "http://[::1/",
        "http://::1/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[v1.x]/",
        "http://[127.0.0.1]/",
        "http://[]/",
        "http://[::1]x/",
        "http://256.1.1.1/",
        "http://1.2.3.4.5/",
        "http://08.1.1.1/",
        "http://0x7g.1/",
        "http://4294967296/",
        "http://1.2.3.0x/../" + "a" * 9000,
        "http://" + "a" * 64 + ".com/",
        "http://" + "a." * 130 + "com/",
        "http://" + "9" * 5000 + "/",
    ],
)
def test_what_is_not_a_plain_http_url_is_refused_with_a_reason(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"^Expected a URL with .*, got"):
        Guard(allow_loopback=True).check_url(url)


def test_a_url_is_taken_apart() -> None:
    target = Guard().check_url("HTTPS://Api.Example.COM.:8443?x=1&y=%20")
    assert (target.scheme, target.host, target.port) == ("https", "api.example.com", 8443)
    assert target.path_and_query == "/?x=1&y=%20"
    assert target.host_header == target.destination == "api.example.com:8443"


def test_the_host_header_leaves_out_the_usual_port_and_the_lane_never_does() -> None:
    target = Guard().check_url("http://example.com/a")
    assert (target.host_header, target.destination, target.path_and_query) == ("example.com", "example.com:80", "/a")
    target = Guard(allow_loopback=True).check_url("https://[::1]:444/")
    assert (target.host, target.host_header, target.destination) == ("::1", "[::1]:444", "[::1]:444")


def test_a_literal_is_called_by_its_canonical_spelling() -> None:
    guard = Guard(allow_loopback=True)
    for host in ("0x7f.1", "2130706433", "127.0.0.1.", "[::ffff:127.0.0.1]"):
        assert guard.check_url(f"http://{host}:80/").host_header == "127.0.0.1"


def test_allow_opens_exactly_what_it_names() -> None:
    guard = Guard(allow=["10.1.0.0/16", "fd00:1::/32"])
    for host in ("10.1.2.3", "[fd00:1::5]", "[::ffff:10.1.0.1]", "8.8.8.8"):
        guard.check_url(f"http://{host}/")
    for host in (
        "10.2.0.1",
        "127.0.0.1",
        "[fd00:2::1]",
        "[64:ff9b::10.1.0.1]",
        "[2002:a01:1::]",
        "[2600::5efe:10.1.0.1]",
        "localhost",
    ):
        with pytest.raises(UnsafeTarget):
            guard.check_url(f"http://{host}/")


def test_allow_loopback_opens_loopback_only() -> None:
    guard = Guard(allow_loopback=True)
    for host in ("127.0.0.1", "127.9.9.9", "[::1]", "localhost", "[::ffff:127.0.0.1]"):
        guard.check_url(f"http://{host}/")
    for host in ("10.0.0.1", "169.254.169.254", "0.0.0.0", "[::]", "[::127.0.0.1]"):
        with pytest.raises(UnsafeTarget):
            guard.check_url(f"http://{host}/")


def test_an_allow_list_that_is_no_network_is_a_configuration_error() -> None:
    for text in ("10.0.0.1/8", "everything", ""):
        with pytest.raises(ConfigError, match="Expected a network"):
            Guard(allow=[text])


async def test_all_answers_of_a_name_are_checked_and_one_bad_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard()
    target = guard.check_url("http://name.example/")
    for bad in ("10.0.0.1", "::ffff:127.0.0.1", "fe80::1%eth0", "::1", "64:ff9b::a9fe:a9fe", "2600::5efe:a00:1"):
        Resolver(monkeypatch, ["8.8.8.8", "2606:4700::1111", bad])
        with pytest.raises(UnsafeTarget, match=r"name\.example"):
            await guard.resolve(target)
    Resolver(monkeypatch, ["8.8.8.8", "2606:4700::1111", "8.8.8.8"])
    assert [str(address) for address in await guard.resolve(target)] == ["8.8.8.8", "2606:4700::1111"]


async def test_the_caller_is_not_told_what_a_name_resolves_to_but_the_log_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard()
    target = guard.check_url("http://intranet.example/")
    told = set()
    for inside in ("10.17.0.5", "fd00::5", "169.254.169.254", "127.0.0.1"):
        Resolver(monkeypatch, ["8.8.8.8", inside])
        caplog.clear()
        with caplog.at_level("WARNING", "mainspring"), pytest.raises(UnsafeTarget) as refused:
            await guard.resolve(target)
        told.add(refused.value.detail)
        [line] = caplog.records
        assert str(line.__dict__["fields"]["address"]) == inside
    assert told == {
        "Expected a public address, got intranet.example, which does not resolve to public addresses only; "
        "the setting allow_targets (--allow-target) opens networks"
    }


async def test_every_resolve_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard()
    target = guard.check_url("http://name.example/")
    resolver = Resolver(monkeypatch, ["8.8.8.8"], ["127.0.0.1"])
    await guard.resolve(target)
    with pytest.raises(UnsafeTarget):
        await guard.resolve(target)
    assert resolver.lookups == 2


async def test_lookups_of_one_name_at_the_same_time_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard()
    target = guard.check_url("http://name.example/")
    resolver = Resolver(monkeypatch, ["8.8.8.8"])
    answers = await asyncio.gather(*(guard.resolve(target) for _ in range(10)))
    assert [len(answer) for answer in answers] == [1] * 10
    assert resolver.lookups == 1
    assert not guard._lookups._asked


async def test_a_caller_that_gives_up_does_not_spoil_the_lookup_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard()
    target = guard.check_url("http://name.example/")
    resolver = Resolver(monkeypatch, ["8.8.8.8"])
    first, second = (asyncio.create_task(guard.resolve(target)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert len(await second) == 1
    assert first.cancelled()
    assert resolver.lookups == 1


async def test_a_name_without_any_address_is_an_error_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard()
    Resolver(monkeypatch, [])
    with pytest.raises(OSError, match="no address"):
        await guard.resolve(guard.check_url("http://name.example/"))


async def test_a_literal_needs_no_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch, [])
    guard = Guard(allow_loopback=True)
    assert [str(address) for address in await guard.resolve(guard.check_url("http://[::1]:1/"))] == ["::1"]
    assert resolver.lookups == 0


def test_the_table_agrees_with_the_registry_where_the_registry_says_no() -> None:
    """Everything that the standard library calls not global is refused here too (and more)."""
    for first in range(256):
        for rest in ("0.0.1", "64.0.1", "168.0.1", "254.169.254", "18.5.5", "0.2.1", "51.100.1"):
            address = ip_address(f"{first}.{rest}")
            if not address.is_global:
                assert why_not_public(address), address
