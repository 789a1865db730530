"""Reading the key: which are valid, which are the same, and what is answered to the others."""
import json

import pytest

from harness.client import Http1, request

BOTH = pytest.mark.parametrize("version", [1, 2])
UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"


def problem(response, status, code):
    assert response.status == status, response.body
    document = json.loads(response.body)
    assert document["code"] == code
    return document


@BOTH
def test_a_required_key_that_is_missing_is_refused_before_the_body_is_sent(guarded, tally, version):
    gateway = guarded()
    problem(request(gateway, "/a", version=version), 400, "key-missing")
    assert tally.count() == 0
    with Http1(gateway.port) as client:
        client.send("/a", body=b"", length=1000000)
        assert client.read().status == 400


def test_an_optional_key_that_is_missing_lets_the_request_through_each_time(guarded, tally):
    gateway = guarded("idempotency_required off;")
    for n in (1, 2, 3):
        assert request(gateway, "/a").status == 200
        assert tally.count("/a") == n
    assert all(" bypass " in line for line in gateway.results(3))


@pytest.mark.parametrize("required", ["on", "off"])
@pytest.mark.parametrize("bad", ["", "   ", '""', "a b", "a\tb", "\xe9", '"a', '"a"b', '"a";v=1', '"a\\b"', "x" * 256,
                                 "x" * 3000, '"a b"', "\x7f"])
def test_a_malformed_key_is_refused_and_never_shared(guarded, tally, required, bad):
    gateway = guarded(f"idempotency_required {required};")
    with Http1(gateway.port) as client:
        client.send("/a", bad)
        document = problem(client.read(), 400, "key-invalid")
    assert document["detail"].endswith(".") and tally.count() == 0


@BOTH
def test_a_key_in_two_field_lines_is_refused(guarded, tally, key, version):
    gateway = guarded()
    twice = [("Idempotency-Key", key), ("idempotency-key", key)]
    problem(request(gateway, "/a", version=version, headers=twice), 400, "key-invalid")
    assert tally.count() == 0


def test_quoted_and_bare_spellings_are_one_key(guarded, tally):
    gateway = guarded()
    first = request(gateway, "/a", UUID)
    for spelling in (f'"{UUID}"', f"  {UUID} ", f' "{UUID}"\t'):
        assert request(gateway, "/a", spelling).same_as(first)
    assert tally.count("/a") == 1
    request(gateway, "/b", '"a\\"b\\\\c"')
    assert request(gateway, "/b", 'a"b\\c').replayed


def test_strict_syntax_takes_the_quoted_form_alone(guarded):
    gateway = guarded("idempotency_key_syntax strict;")
    problem(request(gateway, "/a", UUID), 400, "key-invalid")
    assert request(gateway, "/a", f'"{UUID}"').status == 200


def test_only_uuids_and_only_some_lengths_if_so_configured(guarded):
    gateway = guarded("idempotency_key_format uuid;", server="""
        location /len { idempotency keys; idempotency_key_length 16 20; return 204; }""")
    problem(request(gateway, "/a", "abc"), 400, "key-invalid")
    assert request(gateway, "/a", UUID).status == 200
    other = guarded("idempotency_key_length 16 20;")
    assert "16" in problem(request(other, "/a", "x" * 15), 400, "key-invalid")["detail"]
    assert "20" in problem(request(other, "/a", "x" * 21), 400, "key-invalid")["detail"]
    assert request(other, "/a", "x" * 20).status == 200


def test_long_keys_that_differ_at_their_end_are_different(guarded, tally):
    gateway = guarded()
    for n in (64, 128, 254):
        request(gateway, "/a", "x" * n + "1")
        request(gateway, "/a", "x" * n + "2")
    assert tally.count("/a") == 6


@BOTH
def test_header_names_compare_without_case(guarded, tally, key, version):
    gateway = guarded()
    request(gateway, "/a", version=version, headers=[("IDEMPOTENCY-KEY", key)])
    assert request(gateway, "/a", version=version, headers=[("idempotency-key", key)]).replayed


def test_the_key_may_come_from_any_expression(guarded, tally, key):
    gateway = guarded("idempotency_key $http_paypal_request_id;")
    request(gateway, "/a", headers=[("PayPal-Request-Id", key)])
    assert request(gateway, "/a", headers=[("PayPal-Request-Id", key)]).replayed
    problem(request(gateway, "/a", headers=[("PayPal-Request-Id", key)] * 2), 400, "key-invalid")
    problem(request(gateway, "/a", key), 400, "key-missing")


def test_the_key_may_be_a_member_of_the_body(guarded, tally):
    gateway = guarded("idempotency_key body=/event/id; idempotency_fingerprint_body off;")
    event = b'{"event": {"id": "evt_1"}, "sent": %d}'
    request(gateway, "/hook", body=event % 1)
    assert request(gateway, "/hook", body=event % 2).replayed
    request(gateway, "/hook", body=b'{"event": {"id": 7}}')
    assert request(gateway, "/hook", body=b'{"event": {"id":7}}').replayed
    for body in (b"{}", b"no json", b'{"event": {"id": null}}', b""):
        problem(request(gateway, "/hook", body=body), 400, "key-missing")
    for body in (b'{"event": {"id": {}}}', b'{"event": {"id": "a b"}}', b'{"event": {"id": ""}}'):
        problem(request(gateway, "/hook", body=body), 400, "key-invalid")
    assert tally.count("/hook") == 2


def test_the_digest_of_the_body_makes_a_key_for_clients_that_send_none(guarded, tally):
    gateway = guarded("idempotency_key $idempotency_body_sha256;")
    request(gateway, "/a", body=b"one")
    assert request(gateway, "/a", body=b"one").replayed
    assert not request(gateway, "/a", body=b"two").replayed
    assert tally.count("/a") == 2


def test_other_methods_never_claim_a_key(guarded, tally, key):
    gateway = guarded()
    for method in ("GET", "OPTIONS", "PUT", "DELETE"):
        request(gateway, "/a", key, method=method, body=b"" if method == "PUT" else None)
    assert not request(gateway, "/a", key).replayed
    assert request(gateway, "/a", key, method="PATCH").status == 422
    assert [r.method for r in tally.seen("/a")] == ["GET", "OPTIONS", "PUT", "DELETE", "POST"]


def test_problems_point_to_the_documentation(guarded, key):
    gateway = guarded("idempotency_docs_url https://pay.example/docs;")
    response = request(gateway, "/a")
    assert response.get("Link") == '<https://pay.example/docs>; rel="describedby"'
    assert json.loads(response.body)["type"] == "https://pay.example/docs#key-missing"


def test_a_key_composed_of_fields_that_were_not_sent_is_missing(guarded, tally):
    gateway = guarded('idempotency_key "$http_x_a-$http_x_b";')
    problem(request(gateway, "/a"), 400, "key-missing")
    request(gateway, "/a", headers=[("X-A", "1")])
    assert request(gateway, "/a", headers=[("X-A", "1")]).replayed
    assert not request(gateway, "/a", headers=[("X-B", "1")]).replayed
    assert tally.count("/a") == 2
