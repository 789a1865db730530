"""Responses too large to keep, streams, uploads of a gigabyte, a store that is full, and observing."""
import json
import socket
import threading

import pytest

from harness.client import Http1, request
from harness.gateway import rss_bytes
from harness.stores import SMALL, store_line
from harness.wait import wait_until

BOTH = pytest.mark.parametrize("version", [1, 2])
BUFFERING = pytest.mark.parametrize("buffering", ["on", "off"])


def problem(response, status, code):
    assert response.status == status, (response.status, response.body[:300])
    document = json.loads(response.body)
    assert document["code"] == code
    return document


@BOTH
@BUFFERING
@pytest.mark.parametrize("script", ["len=300000", "len=300000&chunked=1&pieces=1000", "len=300000&eof=1"])
def test_a_response_over_the_limit_streams_and_is_not_executed_again(guarded, tally, key, version, buffering,
                                                                     script):
    gateway = guarded(f"idempotency_max_response 100k; proxy_buffering {buffering}; proxy_buffers 4 4k;"
                      "proxy_busy_buffers_size 8k;")
    target = f"/a?{script}&status=201&h=Location:/o/9"
    first = request(gateway, target, key, version)
    assert first.status == 201 and len(first.body) == 300000
    retry = request(gateway, target, key, version)
    document = problem(retry, 409, "response-not-kept")
    assert document["original_status"] == 201 and document["original_location"].endswith("/o/9")
    assert retry.get("Retry-After") is None and tally.count("/a") == 1


def test_the_limit_itself_is_kept_and_zero_keeps_no_body(guarded, key):
    gateway = guarded("idempotency_max_response 1000;")
    request(gateway, "/a?len=1000", key)
    assert request(gateway, "/a?len=1000", key).replayed
    request(gateway, "/b?len=1001&chunked=1", key + "b")
    problem(request(gateway, "/b?len=1001&chunked=1", key + "b"), 409, "response-not-kept")
    none = guarded("idempotency_max_response 0;")
    request(none, "/a?nobody=204", key)
    assert request(none, "/a?nobody=204", key).replayed
    request(none, "/b", key + "b")
    problem(request(none, "/b", key + "b"), 409, "response-not-kept")


def test_a_large_response_is_streamed_with_bounded_memory(guarded, tally, key):
    gateway = guarded("proxy_max_temp_file_size 0;", workers=1)
    (worker,) = gateway.workers()
    request(gateway, "/warm", key + "w")
    before = rss_bytes(worker)
    with Http1(gateway.port) as client:
        client.send("/a?len=200000000", key)
        status, _, _ = client.read_head()
        left, peak = 200000000, 0
        while left:
            left -= len(client.stream.read(min(left, 10000000)))
            peak = max(peak, rss_bytes(worker))
    assert status == 200 and peak - before < 16 * 1024 * 1024
    problem(request(gateway, "/a?len=200000000", key), 409, "response-not-kept")


@BUFFERING
def test_an_event_stream_is_never_held(guarded, tally, key, buffering):
    gateway = guarded("proxy_buffering off;" if buffering == "off" else "")
    with Http1(gateway.port) as client:
        client.send("/a?sse=1" + ("&h=X-Accel-Buffering:no" if buffering == "on" else ""), key)
        assert client.read_head()[0] == 200
        assert client.stream.readline() and client.stream.readline() == b"data: first\n"
        tally.open("sse")
        while client.stream.readline() != b"0\r\n":
            pass
    problem(request(gateway, "/a?sse=1" + ("&h=X-Accel-Buffering:no" if buffering == "on" else ""), key), 409,
            "response-not-kept")
    assert tally.count("/a") == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_a_gigabyte_is_hashed_while_it_arrives(guarded, tally, key, chunked):
    size = 1 << 30
    gateway = guarded("client_max_body_size 2g; client_body_buffer_size 64k; proxy_read_timeout 300s;", workers=1)
    (worker,) = gateway.workers()
    request(gateway, "/warm", key + "w")
    before, peak = rss_bytes(worker), 0
    piece = bytes(range(256)) * 4096
    for n in (1, 2):
        with Http1(gateway.port, timeout=300) as client:
            if chunked:
                client.send_raw(f"POST /a HTTP/1.1\r\nHost: g\r\nIdempotency-Key: {key}\r\n"
                                "Transfer-Encoding: chunked\r\n\r\n".encode())
            else:
                client.send("/a", key, body=b"", length=size)
            for i in range(size // len(piece)):
                client.send_raw(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
                if i % 64 == 0:
                    peak = max(peak, rss_bytes(worker))
            if chunked:
                client.send_raw(b"0\r\n\r\n")
            response = client.read()
            peak = max(peak, rss_bytes(worker))
        assert response.status == 200 and response.replayed == (n == 2)
    assert tally.count("/a") == 1
    assert peak - before < 16 * 1024 * 1024


def test_a_full_store_refuses_new_keys_and_keeps_the_old_ones(guarded, tally):
    gateway = guarded("idempotency_max_response 200k;", http=store_line(size=SMALL, exact=True), workers=1)
    answers = []
    while True:
        response = request(gateway, "/a?len=20000", f"key-{len(answers)}")
        if response.status == 503:
            break
        answers.append(response)
    problem(response, 503, "store-unavailable")
    assert response.get("Retry-After") == "1" and "the store is full" in gateway.log()
    assert 30 < len(answers) == tally.count("/a")
    for n, first in enumerate(answers):
        assert request(gateway, "/a?len=20000", f"key-{n}").same_as(first)
    assert tally.count("/a") == len(answers)


def test_a_full_store_says_so_once_a_minute(guarded, tally):
    gateway = guarded(http=store_line(size=SMALL, exact=True), workers=1)
    fill(gateway)
    for n in range(50):
        assert request(gateway, "/a", f"refused-{n}").status == 503
    said = [line for line in gateway.log().splitlines() if "failed a claim" in line]
    assert len(said) > 50 and ["[error]" in line for line in said].count(True) == 1


@pytest.mark.sized_only
def test_a_response_that_finds_no_room_is_recorded_without_its_body(guarded, tally):
    gateway = guarded("idempotency_max_response 700k;", http=store_line(size=SMALL, exact=True), workers=1)
    codes = []
    while codes[-3:] != ["response-not-kept"] * 3 and len(codes) < 20:
        n = len(codes)
        assert len(request(gateway, "/a?len=600000", f"key-{n}").body) == 600000
        retry = request(gateway, "/a?len=600000", f"key-{n}")
        codes.append("replayed" if retry.replayed else json.loads(retry.body)["code"])
    kept = codes.count("replayed")
    assert kept and codes == ["replayed"] * kept + ["response-not-kept"] * 3 and tally.count("/a") == len(codes)
    assert "it is recorded without its body" in gateway.log()


def test_a_full_store_has_room_again_when_keys_are_over(guarded, tally):
    gateway = guarded("idempotency_ttl 8s; idempotency_lease 500ms;",
                      http=store_line(size=SMALL, exact=True), workers=1)
    fill(gateway)
    wait_until(lambda: request(gateway, "/again", "new").status == 200, 20)


def fill(gateway):
    with Http1(gateway.port) as client:
        for n in range(20000):
            client.send("/fill?keep=1&len=3000", f"fill-{n}")
            if client.read().status == 503:
                return
    raise AssertionError("the store never filled")


def test_a_full_store_may_let_requests_pass(guarded, tally):
    gateway = guarded("idempotency_store_error pass;", http=store_line(size=SMALL, exact=True), workers=1)
    with Http1(gateway.port) as client:
        for n in range(20000):
            client.send("/a?keep=1&len=3000", f"key-{n}")
            assert client.read().status == 200
            if n % 500 == 0 and "failed a claim" in gateway.log():
                break
    assert "failed a claim" in gateway.log()
    assert any(" store_error " in line for line in gateway.results())


def observe(gateway, target, key, sent, **more):
    """What the log says of the request. No client waits until it is recorded, and so the next one may come too early."""
    def result():
        sent.append(request(gateway, target, key, **more).body)
        said = gateway.results(len(sent))[-1].split()[3]
        return said != "in_progress" and said

    return wait_until(result, what="the record of the request before")


def test_observing_changes_nothing_and_says_what_it_would_have_done(nginx, tally, key):
    gateway = nginx(f"""
        location / {{ idempotency keys observe; proxy_pass http://127.0.0.1:{tally.port}; }}""", workers=1)
    sent = []
    results = [observe(gateway, "/a", k, sent, body=body)
               for k, body in ((key, b"1"), (key, b"1"), (key, b"2"), (None, b"3"), ("a b", b"4"))]
    assert results == ["executed", "replayed", "mismatch", "missing", "invalid"]
    assert len(set(sent)) == len(sent) and tally.count("/a") == len(sent)
    assert not any(r.header("Idempotency-Attempt") for r in tally.seen("/a"))
    assert "would have replayed" in gateway.log() and 'would have answered "key-reused"' in gateway.log()


def test_observing_streams_and_ends_with_the_client(nginx, tally, key):
    gateway = nginx(f"""
        location / {{ idempotency keys observe; proxy_pass http://127.0.0.1:{tally.port}; }}""", workers=1)
    sent = []
    assert observe(gateway, "/a?len=3000000", key, sent) == "not_kept" and len(sent[0]) == 3000000
    assert observe(gateway, "/b?rst=1", key + "2", sent) == "in_doubt"
    assert observe(gateway, "/b?rst=1", key + "2", sent) == "in_doubt"
    assert tally.count("/b") == len(sent) - 1


def test_an_upload_starts_at_the_backend_before_its_end_where_nothing_is_guarded(nginx, tally):
    gateway = nginx(f"""
        idempotency keys;
        location /big {{ idempotency off; proxy_request_buffering off; proxy_pass http://127.0.0.1:{tally.port}; }}""")
    listener = socket.create_server(("127.0.0.1", 0))
    gateway.parts["server"] = gateway.parts["server"].replace(str(tally.port), str(listener.getsockname()[1]))
    gateway.reload()
    with Http1(gateway.port) as client:
        client.send("/big", body=b"begin", length=1000000, method="PUT")
        backend, _ = listener.accept()
        backend.settimeout(20)
        data = b""
        while b"begin" not in data:
            data += backend.recv(4096)
        backend.close()
    listener.close()
