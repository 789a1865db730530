"""What is kept, released, or in doubt: the table of outcomes, over both protocols and both ways of buffering."""
import json

import pytest

from harness.client import request
from harness.gateway import free_port
from harness.stores import store_line

BOTH = pytest.mark.parametrize("version", [1, 2])
BUFFERING = pytest.mark.parametrize("buffering", ["on", "off"])


def code(response):
    assert response.get("Content-Type") == "application/problem+json", response.body
    assert response.get("Content-Language") == "en"
    problem = json.loads(response.body)
    assert problem["status"] == response.status and problem["title"] and problem["detail"] and problem["type"]
    return problem["code"]


@BOTH
@BUFFERING
@pytest.mark.parametrize("status", [200, 201, 202, 299, 301, 303, 307, 400, 403, 404, 409, 422, 500, 501])
def test_a_whole_answer_is_kept_and_replayed(guarded, tally, key, version, buffering, status):
    gateway = guarded(f"proxy_buffering {buffering};")
    first = request(gateway, f"/a?status={status}", key, version)
    second = request(gateway, f"/a?status={status}", key, version)
    assert first.status == status and not first.replayed
    assert second.replayed and second.same_as(first)
    assert tally.count("/a") == 1


@BOTH
@BUFFERING
@pytest.mark.parametrize("status", [401, 408, 425, 429, 503])
def test_a_backend_that_says_it_did_not_do_it_is_asked_again(guarded, tally, key, version, buffering, status):
    gateway = guarded(f"proxy_buffering {buffering};")
    for n in (1, 2):
        response = request(gateway, f"/a?status={status}", key, version)
        assert response.status == status and not response.replayed
        assert tally.count("/a") == n
    assert all(" released " in line for line in gateway.results(2))


@BOTH
@BUFFERING
@pytest.mark.parametrize("script,status", [
    ("status=502", 502), ("status=504", 504), ("rst=1", 502), ("drop=1", 502),
    ("len=1000&cut=5", 502), ("len=1000&chunkcut=1", 502), ("len=9000&cut=8000", 502),
])
def test_an_execution_without_a_whole_answer_leaves_the_key_in_doubt(guarded, tally, key, version, buffering,
                                                                     script, status):
    gateway = guarded(f"proxy_buffering {buffering};")
    assert request(gateway, "/a?" + script, key, version).status == status
    retry = request(gateway, "/a?" + script, key, version)
    assert retry.status == 409 and code(retry) == "outcome-unknown" and retry.get("Retry-After") is None
    assert tally.count("/a") == 1


def test_a_timeout_after_the_request_was_sent_leaves_the_key_in_doubt(guarded, tally, key):
    gateway = guarded("proxy_read_timeout 300ms;")
    assert request(gateway, "/a?gate=never", key).status == 504
    assert code(request(gateway, "/a?gate=never", key)) == "outcome-unknown"
    assert tally.count("/a") == 1


@BOTH
def test_an_answer_that_ends_with_its_connection_is_whole(guarded, tally, key, version):
    gateway = guarded()
    first = request(gateway, "/a?eof=1&len=5000", key, version)
    assert len(first.body) == 5000
    assert request(gateway, "/a?eof=1&len=5000", key, version).same_as(first)
    assert tally.count("/a") == 1


@BOTH
def test_a_request_that_never_left_is_released(nginx, tally, key, version):
    """Connection refused: the backend is down, comes up, and the retry is executed."""
    port = free_port()
    gateway = nginx(f"location / {{ idempotency keys; proxy_pass http://127.0.0.1:{port}; }}")
    assert request(gateway, "/a", key, version).status == 502
    assert " released " in gateway.results(1)[0]
    gateway.parts["server"] = f"location / {{ idempotency keys; proxy_pass http://127.0.0.1:{tally.port}; }}"
    assert gateway.reload() == "reloaded"
    assert request(gateway, "/a", key, version).status == 200
    assert tally.count("/a") == 1


def test_no_live_upstream_and_no_resolver_release_the_key(nginx, key):
    gateway = nginx("""
        location /down { idempotency keys; proxy_pass http://down; }
        location /name { idempotency keys; set $h nowhere.invalid; proxy_pass http://$h; }
    """, http=store_line() + "upstream down { server 127.0.0.1:1 down; }")
    for path in ("/down", "/down", "/name", "/name"):
        assert request(gateway, path, key + path[1:]).status == 502
    assert all(" released " in line for line in gateway.results(4))


def test_the_lists_of_statuses_are_the_operators(guarded, tally):
    gateway = guarded("idempotency_retryable 404; idempotency_unknown 500;")
    request(gateway, "/r?status=404", "k1")
    request(gateway, "/r?status=404", "k1")
    assert tally.count("/r") == 2
    request(gateway, "/u?status=500", "k2")
    assert code(request(gateway, "/u?status=500", "k2")) == "outcome-unknown"
    request(gateway, "/k?status=503", "k3")
    assert request(gateway, "/k?status=503", "k3").replayed


@BOTH
def test_under_retry_a_key_in_doubt_is_executed_again_and_says_so(guarded, tally, key, version):
    gateway = guarded("idempotency_in_doubt retry;")
    assert request(gateway, "/a?rst=1", key, version).status == 502
    assert request(gateway, "/a?rst=1", key, version).status == 502
    assert [r.header("Idempotency-Attempt") for r in tally.seen("/a")] == [["1"], ["2"]]


def test_a_release_does_not_forget_an_earlier_attempt_in_doubt(guarded, tally, key):
    """Attempt 1 is unknown, attempt 2 is refused by the backend: attempt 1 is still unknown."""
    gateway = guarded("idempotency_in_doubt retry; idempotency_fingerprint $uri;")
    request(gateway, "/a?rst=1", key)
    assert request(gateway, "/a?status=503", key).status == 503
    assert request(gateway, "/a", key).status == 200
    assert [r.header("Idempotency-Attempt") for r in tally.seen("/a")] == [["1"], ["2"], ["3"]]


def test_the_clients_own_attempt_header_is_replaced(guarded, tally, key):
    gateway = guarded()
    request(gateway, "/a", key, headers=[("Idempotency-Attempt", "9"), ("idempotency-attempt", "7")])
    assert set(tally.seen("/a")[0].header("Idempotency-Attempt")) == {"1"}


def test_return_answers_before_the_guard(nginx, key):
    """The rewrite phase comes first: such a location is not guarded, as the documentation says."""
    gateway = nginx("location / { idempotency keys; return 201 $request_id; }")
    assert request(gateway, "/a", key).body != request(gateway, "/a", key).body
