"""Whose key it is, and for which request: never another's answer, never an old answer to a changed request."""
import json

import pytest

from harness.client import Http1, Http2, request
from harness.stores import store_line
from harness.tools import store_bytes

BOTH = pytest.mark.parametrize("version", [1, 2])


def auth(token):
    return [("Authorization", "Bearer " + token)]


@BOTH
def test_two_callers_with_one_key_have_two_records(guarded, tally, key, version):
    gateway = guarded()
    a = request(gateway, "/pay", key, version, headers=auth("A"))
    b = request(gateway, "/pay", key, version, headers=auth("B"))
    assert a.status == b.status == 200 and a.body != b.body and not b.replayed
    assert request(gateway, "/pay", key, version, headers=auth("A")).body == a.body
    assert tally.count("/pay") == 2


def test_another_callers_key_cannot_be_probed(guarded, key):
    """What B gets for A's key does not differ from what it gets for any new key, also with another body."""
    gateway = guarded()
    request(gateway, "/pay", key, headers=auth("A"), body=b"secret")
    b = request(gateway, "/pay", key, headers=auth("B"), body=b"other")
    assert b.status == 200 and not b.replayed


def test_a_stable_principal_survives_the_rotation_of_its_token(guarded, tally, key):
    gateway = guarded("idempotency_scope $principal;", http=store_line() + """
        map $http_authorization $principal { "Bearer old" alice; "Bearer new" alice; default ""; }""")
    request(gateway, "/a", key, headers=auth("old"))
    assert request(gateway, "/a", key, headers=auth("new")).replayed
    assert tally.count("/a") == 1


def test_an_empty_scope_is_refused_where_one_is_required(guarded, tally, key):
    gateway = guarded("idempotency_scope $http_authorization required;")
    response = request(gateway, "/a", key)
    assert response.status == 400 and json.loads(response.body)["code"] == "scope-missing"
    assert tally.count() == 0
    assert request(gateway, "/a", key, headers=auth("A")).status == 200


@BOTH
@pytest.mark.parametrize("other", [
    {"body": b'{"amount":2}'}, {"target": "/pay?x=2"}, {"target": "/pay/cancel"}, {"method": "PATCH"}, {"body": b""},
])
def test_the_same_key_for_another_request_is_refused(guarded, tally, key, version, other):
    gateway = guarded()
    same = {"target": "/pay?x=1", "body": b'{"amount":1}'}
    first = request(gateway, key=key, version=version, **same)
    for _ in range(2):
        response = request(gateway, key=key, version=version, **{**same, **other})
        assert response.status == 422 and json.loads(response.body)["code"] == "key-reused"
        assert b"execution" not in response.body
    assert request(gateway, key=key, version=version, **same).same_as(first)
    assert tally.count() == 1


def test_a_mismatch_is_found_while_the_first_request_runs_and_in_doubt(guarded, tally, key):
    gateway = guarded()
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key, body=b"1")
        wait_for(tally, "/a")
        assert request(gateway, "/a?gate=g", key, body=b"2").status == 422
        tally.open("g")
        assert first.read().status == 200
    request(gateway, "/b?rst=1", key + "b", body=b"1")
    assert request(gateway, "/b?rst=1", key + "b", body=b"2").status == 422


def wait_for(tally, path, n=1):
    from harness.wait import wait_until
    wait_until(lambda: tally.count(path) >= n, what=f"execution {n} of {path}")


@pytest.mark.parametrize("size", [0, 1, 1000, 8191, 8193, 20000, 2000000])
def test_bodies_of_every_size_and_framing_have_one_fingerprint(guarded, tally, key, size):
    """In memory or in a file, with a length or in chunks, over HTTP/1.1 or HTTP/2: the bytes count."""
    gateway = guarded("client_max_body_size 10m;")
    body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    first = request(gateway, "/a", key, body=body)
    assert first.status == 200
    with Http1(gateway.port) as client:
        client.send("/a", key, body=body, chunked=True)
        assert client.read().replayed
    with Http2(gateway.port2) as client:
        assert client.read(client.send("/a", key, body=body, length=False)).replayed
        assert client.read(client.send("/a", key, body=body)).replayed
    if size:
        changed = body[:-1] + b"!"
        assert request(gateway, "/a", key, body=changed).status == 422
        assert request(gateway, "/a", key, 2, body=changed).status == 422
    assert tally.count("/a") == 1


def test_bodies_in_files_count_too(guarded, key):
    gateway = guarded("client_body_in_file_only clean;")
    request(gateway, "/a", key, body=b"a" * 5000)
    assert request(gateway, "/a", key, body=b"a" * 5000).replayed
    assert request(gateway, "/a", key, body=b"b" * 5000).status == 422


def test_json_that_means_the_same_is_the_same(guarded, tally, key):
    gateway = guarded("idempotency_fingerprint_body json ignore=/meta/sent;")
    request(gateway, "/a", key, body=b'{"amount": 10, "meta": {"sent": 1, "by": "x"}}')
    for same in (b'{"meta":{"by":"x","sent":2},"amount":1e1}', b' {"amount":10.0,"meta":{"by":"\\u0078"}} '):
        assert request(gateway, "/a", key, body=same).replayed
    for other in (b'{"amount":11,"meta":{"by":"x"}}', b'{"amount":"10","meta":{"by":"x"}}', b"no json",
                  b'{"amount":10,"amount":10,"meta":{"by":"x"}}'):
        assert request(gateway, "/a", key, body=other).status == 422


def test_only_some_members_may_count(guarded, key):
    gateway = guarded("idempotency_fingerprint_body json only=/amount only=/currency;")
    request(gateway, "/a", key, body=b'{"amount":1,"currency":"EUR","session":"s1"}')
    assert request(gateway, "/a", key, body=b'{"amount":1,"currency":"EUR","session":"s2"}').replayed
    assert request(gateway, "/a", key, body=b'{"amount":1,"currency":"USD","session":"s1"}').status == 422
    assert request(gateway, "/a", key, body=b'{"amount":1}').status == 422


def test_nothing_of_a_caller_is_in_any_log_or_in_the_open_in_the_store(guarded, tally, key):
    gateway = guarded(workers=1)
    secret = "sesame-" + key
    request(gateway, f"/a?h=X-Secret:{key}-header", secret, headers=auth("tok-" + key), body=b"body-" + key.encode())
    request(gateway, "/b", secret, headers=auth("tok-" + key), body=b"other")
    request(gateway, "/a?rst=1", secret + "2", headers=auth("tok-" + key))
    request(gateway, "/a?rst=1", secret + "2", headers=auth("tok-" + key))
    for line in (gateway.log() + gateway.read("access.log")).splitlines():
        quoted_by_nginx = line.split(", client:")[0]
        assert secret not in line and "tok-" not in line and "body-" not in quoted_by_nginx
    store = store_bytes(gateway)
    assert secret.encode() not in store and b"tok-" not in store and ("body-" + key).encode() not in store
    assert b"X-Secret" in store, "this looked into the right place"
