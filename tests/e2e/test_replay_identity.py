"""A replay is the same response, byte for byte, and passes the same filters as the first."""
import gzip

import pytest

from harness.client import Http1, request
from harness.stores import store_line

BOTH = pytest.mark.parametrize("version", [1, 2])
BUFFERING = pytest.mark.parametrize("buffering", ["on", "off"])


def twice(gateway, target, key, version=1, **more):
    first = request(gateway, target, key, version, **more)
    second = request(gateway, target, key, version, **more)
    assert not first.replayed and second.replayed, (first.status, second.status, second.body[:200])
    assert second.same_as(first)
    return first, second


@BOTH
@BUFFERING
@pytest.mark.parametrize("script", [
    "status=201&reason=Made&h=Location:/o/1&h=ETag:%22x%22&h=Set-Cookie:a=1&h=Set-Cookie:b=2&h=X-A:1&h=X-B:2&h=X-A:3",
    "nobody=204&h=X-A:1", "len=0", "len=1", "len=65536", "len=300000", "len=300000&pieces=1000", "len=2000&pieces=1",
    "chunked=1&len=5000&pieces=777", "chunked=1&len=0", "eof=1&len=100", "status=302&h=Location:/else",
    "status=500&reason=It+Broke", "h=Cache-Control:no-store&h=Cache-Control:private&h=Link:%3C/a%3E&h=Link:%3C/b%3E",
    "h=Content-Type:text/html;+charset=iso-8859-1", "h=Content-Type:application/json", "h=Last-Modified:Tue, 15 Nov"
    " 1994 12:45:26 GMT".replace(" ", "+"), "gz=1&len=3000", "h=WWW-Authenticate:Basic&status=403", "pre=1",
])
def test_replays_are_identical(guarded, tally, key, version, buffering, script):
    gateway = guarded(f"proxy_buffering {buffering}; proxy_buffers 4 4k; proxy_busy_buffers_size 8k;")
    first, second = twice(gateway, "/a?" + script, key, version)
    for response in (first, second):
        assert len(response.all("Date")) == 1 and len(response.all("Server")) == 1
        assert len(response.all("Content-Length")) == (0 if response.status == 204 else 1)
        assert len(response.all("Transfer-Encoding")) == 0
    assert tally.count("/a") == 1


@BOTH
@BUFFERING
def test_five_megabytes_of_any_bytes_under_a_raised_limit(guarded, key, version, buffering):
    gateway = guarded(f"proxy_buffering {buffering}; idempotency_max_response 8m;",
                      http=store_line(size="32m"))
    first, _ = twice(gateway, "/a?len=5000000&pieces=100000", key, version)
    assert len(first.body) == 5000000


def test_the_marker_is_ours_alone(guarded, key):
    gateway = guarded()
    first = request(gateway, "/a?h=Idempotent-Replayed:true", key)
    assert first.all("Idempotent-Replayed") == []
    assert request(gateway, "/a?h=Idempotent-Replayed:true", key).all("Idempotent-Replayed") == ["true"]
    assert request(gateway, "/g?h=Idempotent-Replayed:true", method="GET", body=None).all("Idempotent-Replayed") == []


def test_hidden_fields_reach_the_first_client_alone(guarded, key):
    gateway = guarded("idempotency_hide_header X-RateLimit-Remaining Set-Cookie;")
    target = "/a?h=X-RateLimit-Remaining:9&h=Set-Cookie:a=1&h=X-Kept:1"
    first, second = request(gateway, target, key), request(gateway, target, key)
    assert first.get("X-RateLimit-Remaining") == "9" and first.get("Set-Cookie") == "a=1"
    assert second.get("X-RateLimit-Remaining") is None and second.get("Set-Cookie") is None
    assert second.get("X-Kept") == "1"


@BOTH
def test_add_header_and_expires_work_once_on_each(guarded, key, version):
    gateway = guarded("add_header X-Added $idempotency_result always; add_header Cache-Control public; expires 1h;")
    first = request(gateway, "/a", key, version)
    second = request(gateway, "/a", key, version)
    assert first.all("X-Added") == ["executed"] and second.all("X-Added") == ["replayed"]
    assert len(first.all("Expires")) == len(second.all("Expires")) == 1
    assert first.all("Cache-Control") == second.all("Cache-Control") != []


@BOTH
@pytest.mark.parametrize("first_gzip,second_gzip", [(True, False), (False, True), (True, True)])
def test_gzip_is_the_clients_choice_each_time(guarded, key, version, first_gzip, second_gzip):
    gateway = guarded("gzip on; gzip_types *; gzip_min_length 1; gzip_proxied any; gzip_http_version 1.0;")

    def plain(accepts):
        headers = [("Accept-Encoding", "gzip")] if accepts else []
        response = request(gateway, "/a?len=5000&h=Content-Type:text/plain", key, version, headers=headers)
        assert (response.get("Content-Encoding") == "gzip") == accepts
        return gzip.decompress(response.body) if accepts else response.body

    assert plain(first_gzip) == plain(second_gzip)


@BOTH
def test_what_the_backend_encoded_is_replayed_with_its_encoding(guarded, key, version):
    gateway = guarded("gzip on; gzip_types *; gzip_min_length 1;")
    first, second = twice(gateway, "/a?gz=1&len=3000", key, version, headers=[("Accept-Encoding", "gzip")])
    assert gzip.decompress(first.body) == gzip.decompress(second.body) and len(gzip.decompress(first.body)) == 3000


def test_a_replay_is_never_a_part_or_not_modified(guarded, key):
    gateway = guarded()
    target = "/a?h=ETag:%22x%22&h=Last-Modified:Tue,+15+Nov+1994+12:45:26+GMT&h=Accept-Ranges:bytes&len=1000"
    first = request(gateway, target, key)
    for headers in ([("If-None-Match", '"x"')], [("Range", "bytes=0-9")], [("If-Match", '"y"')],
                    [("If-Modified-Since", "Tue, 15 Nov 1994 12:45:26 GMT")]):
        response = request(gateway, target, key, headers=headers)
        assert response.status == 200 and response.body == first.body


def test_trailers_of_an_http1_backend_never_enter_the_body(guarded, key):
    gateway = guarded()
    for version in (1, 2):
        first, _ = twice(gateway, "/a?trailer=X-Sum:1&len=100", key + str(version), version,
                         headers=[("TE", "trailers")])
        assert len(first.body) == 100


def test_connections_are_kept_after_every_kind_of_answer(guarded, tally, key):
    gateway = guarded("idempotency_wait 0;")
    with Http1(gateway.port) as client:
        for target, k, body, status in (("/a", key, b"x", 200), ("/a", key, b"x", 200), ("/a", key, b"y", 422),
                                        ("/a", None, b"z" * 100, 400), ("/a?nobody=204", key + "2", b"", 204),
                                        ("/a?nobody=204", key + "2", b"", 204), ("/a", key, b"x", 200)):
            client.send(target, k, body=body)
            assert client.read().status == status
