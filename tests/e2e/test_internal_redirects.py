"""Internal redirects, error pages and access control behave as without a guard, and claim once."""
import json

import pytest

from harness.client import request
from harness.stores import store_line

BOTH = pytest.mark.parametrize("version", [1, 2])


def twice(gateway, target, key, version=1, **more):
    first = request(gateway, target, key, version, **more)
    second = request(gateway, target, key, version, **more)
    assert second.replayed and second.same_as(first), (first.status, second.status, second.body)
    return first


@BOTH
def test_an_error_page_from_a_file_is_what_is_replayed(nginx, tally, tmp_path, key, version):
    (tmp_path / "err.html").write_text("an error page\n")
    gateway = nginx(f"""
        root {tmp_path};
        location / {{ idempotency keys; proxy_intercept_errors on; error_page 500 404 /err.html;
                      proxy_pass http://127.0.0.1:{tally.port}; }}
        location = /err.html {{ internal; }}""")
    for status in (500, 404):
        first = twice(gateway, f"/a?status={status}", f"{key}{status}", version)
        assert first.status == status and first.body == b"an error page\n"
    assert tally.count("/a") == 2


def test_an_intercepted_503_still_releases(nginx, tally, tmp_path, key):
    (tmp_path / "err.html").write_text("later\n")
    gateway = nginx(f"""
        root {tmp_path};
        location / {{ idempotency keys; proxy_intercept_errors on; error_page 503 =200 /err.html;
                      proxy_pass http://127.0.0.1:{tally.port}; }}
        location = /err.html {{ internal; }}""")
    for n in (1, 2):
        assert request(gateway, "/a?status=503", key).body == b"later\n"
        assert tally.count("/a") == n


@BOTH
def test_a_second_backend_behind_an_error_page(nginx, tally, key, version):
    gateway = nginx(f"""
        location / {{ idempotency keys; proxy_intercept_errors on; error_page 500 = @b;
                      proxy_pass http://127.0.0.1:{tally.port}; }}
        location @b {{ idempotency keys; rewrite ^ /b? break; proxy_pass http://127.0.0.1:{tally.port}; }}""")
    first = twice(gateway, "/a?status=500", key, version)
    assert first.status == 200 and b"/b" in first.body
    assert tally.count("/a") == 1 and tally.count("/b") == 1


def test_a_502_page_after_a_sent_request_is_doubt(nginx, tally, tmp_path, key):
    (tmp_path / "err.html").write_text("bad gateway\n")
    gateway = nginx(f"""
        root {tmp_path};
        location / {{ idempotency keys; error_page 502 /err.html; proxy_pass http://127.0.0.1:{tally.port}; }}
        location = /err.html {{ internal; }}""")
    assert request(gateway, "/a?rst=1", key).body == b"bad gateway\n"
    retry = request(gateway, "/a?rst=1", key)
    assert retry.status == 409 and json.loads(retry.body)["code"] == "outcome-unknown"
    assert tally.count("/a") == 1


@BOTH
def test_x_accel_redirect(nginx, tally, tmp_path, key, version):
    (tmp_path / "file.txt").write_text("from a file " * 1000)
    gateway = nginx(f"""
        location / {{ idempotency keys; proxy_pass http://127.0.0.1:{tally.port}; }}
        location /files/ {{ internal; alias {tmp_path}/; }}
        location /other/ {{ internal; idempotency keys; proxy_pass http://127.0.0.1:{tally.port}/other/; }}""")
    first = twice(gateway, "/a?h=X-Accel-Redirect:/files/file.txt", key, version)
    assert first.body.startswith(b"from a file") and len(first.body) == 12000
    second = twice(gateway, "/a?h=X-Accel-Redirect:/other/x", key + "2", version)
    assert b"/other/x" in second.body
    assert tally.count("/a") == 2 and tally.count("/other/x") == 1


@BOTH
def test_try_files_to_a_named_location(nginx, tally, key, version):
    gateway = nginx(f"""
        location / {{ idempotency keys; try_files /nothing @api; }}
        location @api {{ proxy_pass http://127.0.0.1:{tally.port}; }}
        location /inner {{ try_files /nothing @guarded; }}
        location @guarded {{ idempotency keys; proxy_pass http://127.0.0.1:{tally.port}; }}""")
    twice(gateway, "/a", key, version)
    twice(gateway, "/inner/b", key + "2", version)
    assert tally.count("/a") == 1 and tally.count("/inner/b") == 1


@BOTH
def test_a_client_that_leaves_a_named_location_is_awaited(nginx, tally, key, version):
    from harness.client import Http1, Http2
    from harness.wait import wait_until
    gateway = nginx(f"""
        location / {{ idempotency keys; idempotency_wait 20s; try_files /nothing @api; }}
        location @api {{ proxy_pass http://127.0.0.1:{tally.port}; }}""")
    client = Http1(gateway.port) if version == 1 else Http2(gateway.port2)
    client.send("/a?gate=g", key)
    wait_until(lambda: tally.count("/a"))
    client.close()
    tally.open("g")
    assert request(gateway, "/a?gate=g", key).replayed and tally.count("/a") == 1


@BOTH
def test_a_replay_is_only_for_those_who_may_ask(nginx, tally, key, version):
    gateway = nginx(f"""
        location / {{ idempotency keys; idempotency_scope all; auth_request /auth;
                      proxy_pass http://127.0.0.1:{tally.port}; }}
        location = /auth {{ internal; proxy_pass_request_body off; proxy_set_header Content-Length "";
                            if ($http_authorization != good) {{ return 401; }} return 204; }}
        location /any {{ satisfy any; deny all; auth_request /auth; idempotency keys; idempotency_scope all;
                         proxy_pass http://127.0.0.1:{tally.port}; }}""")
    good, bad = [("Authorization", "good")], [("Authorization", "bad")]
    for path, k in (("/a", key), ("/any", key + "2")):
        body = b"x" * 100000
        first = request(gateway, path, k, version, headers=good, body=body)
        assert first.status == 200
        assert request(gateway, path, k, version, headers=good, body=body).replayed
        for _ in range(2):
            refused = request(gateway, path, k, version, headers=bad, body=body)
            assert refused.status in (401, 403) and not refused.replayed and first.body not in refused.body
        assert tally.count(path) == 1


def test_limits_are_counted_for_replays_too(nginx, tally, key):
    gateway = nginx(f"""
        location / {{ idempotency keys; limit_req zone=one; proxy_pass http://127.0.0.1:{tally.port}; }}""",
                    http=store_line() + "limit_req_zone all zone=one:1m rate=1r/m;")
    assert request(gateway, "/a", key).status == 200
    assert request(gateway, "/a", key).status == 503
    assert tally.count("/a") == 1


def test_mirror_sees_the_first_request_alone(nginx, tally, key):
    gateway = nginx(f"""
        location / {{ idempotency keys; mirror /mirror; proxy_pass http://127.0.0.1:{tally.port}; }}
        location = /mirror {{ internal; proxy_pass http://127.0.0.1:{tally.port}/mirrored; }}""")
    twice(gateway, "/a", key, body=b"x" * 50000)
    from harness.wait import wait_until
    wait_until(lambda: tally.count("/mirrored"))
    assert tally.count("/a") == 1


def test_two_entries_to_one_operation_have_one_rule(nginx, tally, key):
    gateway = nginx(f"""
        idempotency keys; idempotency_fingerprint charge; idempotency_methods POST PUT;
        location /v1/ {{ proxy_next_upstream off; proxy_pass http://127.0.0.1:{tally.port}/x/; }}
        location /v2/ {{ proxy_next_upstream off; proxy_pass http://127.0.0.1:{tally.port}/x/; }}
        location /open/ {{ idempotency off; proxy_pass http://127.0.0.1:{tally.port}/open/; }}""")
    first = request(gateway, "/v1/c", key)
    assert request(gateway, "/v2/c", key).body == first.body
    assert request(gateway, "/v2/c", key, method="PUT").replayed
    assert tally.count("/x/c") == 1
    assert request(gateway, "/open/c").status == 200


def test_a_subrequest_is_not_guarded(nginx, tally, key):
    gateway = nginx(f"""
        idempotency keys;
        location / {{ auth_request /auth; proxy_pass http://127.0.0.1:{tally.port}; }}
        location /auth {{ proxy_pass_request_body off; proxy_set_header Content-Length "";
                          proxy_pass http://127.0.0.1:{tally.port}/auth; }}""")
    twice(gateway, "/a", key)
    assert tally.count("/auth") == 2 and tally.count("/a") == 1
