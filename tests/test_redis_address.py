from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.settings.redis_address import Address, NotAnAddress, address_in

SCHEMES = ("redis", "rediss", "redis+sentinel", "redis+cluster")
WORDS = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,10}", fullmatch=True)
HOSTS = st.tuples(NAMES, st.integers(1, 65535))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", Address("redis", [("h", 6379)])),
        ("redis://h:1/2", Address("redis", [("h", 1)], database=2)),
        ("redis://[::1]:1/", Address("redis", [("::1", 1)])),
        ("redis://[::1]", Address("redis", [("::1", 6379)])),
        ("redis://u:p@h", Address("redis", [("h", 6379)], user="u", password="p")),
        ("redis://:p@h", Address("redis", [("h", 6379)], password="p")),
        ("redis://u@h", Address("redis", [("h", 6379)], user="u")),
        ("redis://:p%40%2F%3F@h", Address("redis", [("h", 6379)], password="p@/?")),
        ("redis://:a/b@h/1", Address("redis", [("h", 6379)], password="a/b", database=1)),
        ("rediss://h?ca=/etc/ca.pem", Address("rediss", [("h", 6379)], tls=True, ca="/etc/ca.pem")),
        ("rediss://h?verify=no", Address("rediss", [("h", 6379)], tls=True, verify=False)),
        (
            "redis+sentinel://a,b:2/main/3",
            Address("redis+sentinel", [("a", 26379), ("b", 2)], service="main", database=3),
        ),
        (
            "redis+sentinel://:p@a/main?sentinel_user=s&sentinel_password=q%26&tls=true",
            Address(
                "redis+sentinel",
                [("a", 26379)],
                service="main",
                password="p",
                sentinel_user="s",
                sentinel_password="q&",
                tls=True,
            ),
        ),
        ("redis+cluster://a, b:2", Address("redis+cluster", [("a", 6379), ("b", 2)])),
        ("redis+cluster://a/0?tls=1", Address("redis+cluster", [("a", 6379)], tls=True)),
    ],
)
def test_a_url_names_servers(url: str, expected: Address) -> None:
    assert address_in(url) == expected


@given(
    scheme=st.sampled_from(SCHEMES),
    user=st.none() | WORDS,
    password=st.none() | WORDS,
    host=HOSTS,
    database=st.integers(0, 99),
)
def test_whatever_is_escaped_comes_back(
    scheme: str, user: str | None, password: str | None, host: tuple[str, int], database: int
) -> None:
    who = quote(user or "", safe="") + (":" + quote(password, safe="") if password is not None else "")
    path = {"redis+sentinel": f"/main/{database}", "redis+cluster": ""}.get(scheme, f"/{database}")
    found = address_in(f"{scheme}://{who}{'@' if who else ''}{host[0]}:{host[1]}{path}")
    assert (found.scheme, found.hosts, found.user, found.password) == (scheme, [host], user, password)
    assert found.database == (0 if scheme == "redis+cluster" else database)


@given(
    scheme=st.sampled_from(SCHEMES),
    rest=st.text(st.characters() | st.sampled_from(":/?@,[]%=&#"), max_size=60),
)
@example(scheme="redis", rest="h:" + "9" * 5000)
@example(scheme="redis", rest="h/" + "9" * 5000)
@example(scheme="redis", rest="a..b")
@example(scheme="redis", rest="x" * 64)
@example(scheme="redis", rest=":\udcff@h")
@example(scheme="redis", rest="h?" + "&".join(f"ca={number}" for number in range(50)))
def test_what_is_no_address_is_refused_in_one_way(scheme: str, rest: str) -> None:
    try:
        found = address_in(f"{scheme}://{rest}")
    except NotAnAddress:
        return
    assert found.hosts
    assert all(host.encode("idna") and 0 < port < 65536 for host, port in found.hosts)


PASSWORD = st.text(st.sampled_from("hunter2XYZ:/?@,[]%=&#"), min_size=4, max_size=20).map("Zx9_{}_9xZ".format)


@given(scheme=st.sampled_from(SCHEMES), password=PASSWORD, rest=st.text(max_size=20))
@example(scheme="redis", password="Zx9_?Zx9_=Zx9_", rest="")
@example(scheme="redis", password="Zx9_?Zx9_&Zx9_", rest="")
@example(scheme="redis", password="Zx9_", rest="?Zx9_=1")
def test_no_message_repeats_a_piece_of_a_password(scheme: str, password: str, rest: str) -> None:
    for url in (f"{scheme}://u:{password}@h{rest}", f"{scheme}://h/main?sentinel_password={password}{rest}"):
        shown = said_of(url)
        assert "Zx9" not in shown
        assert "9xZ" not in shown


def said_of(url: str) -> str:
    """What a log may get to see of it; hosts are no secret."""
    try:
        found = address_in(url)
    except NotAnAddress as problem:
        return str(problem)
    return repr(found).replace(str(found.hosts), "")


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://,",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:x",
        "redis://a b",
        "redis://a,b",
        "redis://h/x",
        "redis://h/1/2",
        "redis://h?verify=perhaps",
        "redis://h?unknown=1",
        "redis://h?ca",
        "redis+sentinel://h",
        "redis+sentinel://h/main/x",
        "redis+cluster://h/1",
    ],
)
def test_what_cannot_be_meant_is_refused(url: str) -> None:
    with pytest.raises(NotAnAddress):
        address_in(url)
