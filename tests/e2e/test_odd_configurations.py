"""Configurations and requests that are rare: what nginx can do in a location, it can do in a guarded one."""
import os
import signal
import subprocess

import pytest

from harness.client import Http1, request
from harness.gateway import NGINX
from harness.stores import DESCRIPTORS, is_store, store_line
from harness.wait import wait_until

BOTH = pytest.mark.parametrize("version", [1, 2])


def twice(gateway, target, key, version=1, **more):
    first = request(gateway, target, key, version, **more)
    second = request(gateway, target, key, version, **more)
    assert second.replayed and second.same_as(first), (first.status, second.status, second.body[:300])
    return first


def test_pipelined_requests_are_answered_in_order(guarded, tally, key):
    gateway = guarded()
    with Http1(gateway.port) as client:
        head = "POST /a HTTP/1.1\r\nHost: g\r\nIdempotency-Key: {}\r\nContent-Length: 2\r\n\r\n{{}}"
        keys = [key + "1", key + "2", key + "1", "bad key", key + "2"]
        client.send_raw("".join(head.format(k) for k in keys).encode())
        answers = [client.read() for _ in keys]
    assert [a.status for a in answers] == [200, 200, 200, 400, 200]
    assert answers[0].body == answers[2].body and answers[1].body == answers[4].body
    assert tally.count("/a") == 2


@BOTH
@pytest.mark.parametrize("extra", [
    "ssi on; ssi_types text/plain;", "sub_filter execution run; sub_filter_types text/plain; sub_filter_once off;",
    "client_body_in_single_buffer on;", "proxy_ignore_client_abort on;", "sendfile on; aio threads; tcp_nopush on;",
    "postpone_output 0;", "chunked_transfer_encoding off;", "output_buffers 1 512;", "proxy_buffering off; limit_rate 64k;",
    "error_page 409 422 400 /nowhere;", "recursive_error_pages on; error_page 404 /nowhere;",
    "charset utf-8; charset_types text/plain;", "proxy_http_version 1.1;", "etag off; if_modified_since before;",
    "post_action /after;", "limit_except GET POST { deny all; }", "keepalive_timeout 0;", "lingering_close always;",
    "if ($request_method = POST) { set $x 1; }", "proxy_max_temp_file_size 0; proxy_buffers 2 4k; proxy_busy_buffers_size 4k;",
    "max_ranges 0;", "server_tokens off;", "reset_timedout_connection on;",
])
def test_a_directive_beside_the_guard_changes_nothing_about_it(guarded, tally, key, version, extra):
    gateway = guarded(extra, server="location /after { return 204; }")
    twice(gateway, "/a?len=20000", key, version)
    twice(gateway, "/b?h=Server:x&h=Date:y", key + "2", version)
    assert request(gateway, "/a?len=20000", key, version, body=b"other").status == 422
    assert tally.count("/a") == 1 and tally.count("/b") == 1


def test_a_request_that_is_passed_on_inside_an_if_is_guarded(nginx, tally, key):
    gateway = nginx(f"""
        location / {{ idempotency keys; if ($http_x_new) {{ proxy_pass http://127.0.0.1:{tally.port}; }}
                      proxy_pass http://127.0.0.1:{tally.port}; }}""")
    twice(gateway, "/a", key, headers=[("X-New", "1")])
    twice(gateway, "/a", key + "2")
    assert tally.count("/a") == 2


@BOTH
@pytest.mark.parametrize("script", ["status=304&nobody=304", "status=206&h=Content-Range:bytes+0-9/100&len=10",
                                    "status=203", "status=418&reason=", "status=599", "status=226&len=3"])
def test_rare_statuses_are_kept(guarded, tally, key, version, script):
    gateway = guarded()
    twice(gateway, "/a?" + script, key, version)
    assert tally.count("/a") == 1


def test_large_and_many_header_fields_are_kept(guarded, tally, key):
    gateway = guarded("proxy_buffer_size 128k; proxy_buffers 4 128k; proxy_busy_buffers_size 128k;")
    first = twice(gateway, "/a?" + "&".join(f"h=X-{n}:{'v' * 60}" for n in range(100)), key)
    assert first.get("X-99") == "v" * 60


def test_an_upgraded_connection_passes_and_its_key_is_told_so(nginx, key):
    import socket
    import threading
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n")
        connection.sendall(connection.recv(100))
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    gateway = nginx(f"""
        location / {{ idempotency keys; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;
                      proxy_set_header Connection upgrade; proxy_pass http://127.0.0.1:{listener.getsockname()[1]}; }}""")
    with Http1(gateway.port) as client:
        client.send("/a", key, headers=[("Upgrade", "echo"), ("Connection", "upgrade")])
        assert client.read_head()[0] == 101
        client.send_raw(b"ping")
        assert client.stream.read(4) == b"ping"
    retry = request(gateway, "/a", key)
    assert retry.status == 409 and b"response-not-kept" in retry.body
    listener.close()


@BOTH
def test_content_that_nginx_makes_itself_is_kept(nginx, tally, tmp_path, key, version):
    (tmp_path / "page.txt").write_text("static")
    gateway = nginx(f"root {tmp_path}; location / {{ idempotency keys; }}")
    assert request(gateway, "/page.txt", key, version).status == 405
    assert request(gateway, "/page.txt", key, version).replayed


def test_several_stores_are_several(nginx, tally, key):
    gateway = nginx(f"""
        location /one {{ idempotency one; proxy_pass http://127.0.0.1:{tally.port}; }}
        location /two {{ idempotency two; idempotency_fingerprint x; proxy_pass http://127.0.0.1:{tally.port}; }}""",
                    http=store_line("one", "1m") + store_line("two", "2m"))
    twice(gateway, "/one", key)
    twice(gateway, "/two", key)
    assert tally.count("/one") == 1 and tally.count("/two") == 1


def open_files(pid):
    """What its descriptors lead to; some may be closed meanwhile."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:
            pass
    return links


def test_stores_come_and_go_with_reloads(nginx, tally, key):
    location = f"location / {{ idempotency NAME; proxy_pass http://127.0.0.1:{tally.port}; }}"
    gateway = nginx(location.replace("NAME", "one"), http=store_line("one", "1m"))
    first = request(gateway, "/a", key)
    gateway.parts.update(server=location.replace("NAME", "two"),
                         http=store_line("one", "1m") + store_line("two", "2m"))
    assert gateway.reload() == "reloaded"
    assert request(gateway, "/a", key).body != first.body
    gateway.parts["server"] = location.replace("NAME", "one")
    assert gateway.reload() == "reloaded"
    assert request(gateway, "/a", key).same_as(first)
    gateway.parts.update(server=location.replace("idempotency NAME;", ""), http="")
    assert gateway.reload() == "reloaded"
    assert not request(gateway, "/a", key).replayed
    for _ in range(5):
        assert gateway.reload() == "reloaded"
    links = open_files(gateway.pid())
    wait_until(lambda: len(gateway.workers()) == 2)
    assert sum(is_store(link) for link in links) <= 2 * DESCRIPTORS


def test_a_single_process_is_enough(nginx, tally, key):
    gateway = nginx(f"location / {{ idempotency keys; proxy_pass http://127.0.0.1:{tally.port}; }}", run=False,
                    main="master_process off; daemon off;", workers=1)
    gateway.write()
    process = subprocess.Popen([NGINX, "-p", gateway.dir, "-c", gateway.path("nginx.conf")],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        first = wait_until(lambda: attempt(gateway, key))
        for n in range(20):
            assert request(gateway, "/a", key).same_as(first)
            assert request(gateway, "/a", f"{key}-{n}").status == 200
        assert tally.count("/a") == 21
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(30)
    assert "[alert]" not in gateway.log()


def attempt(gateway, key):
    try:
        return request(gateway, "/a", key)
    except OSError:
        return None


def test_idle_upstream_connections_that_close_execute_nothing_twice(nginx, tally, key):
    gateway = nginx("location / { idempotency keys; proxy_http_version 1.1; proxy_set_header Connection '';"
                    "proxy_pass http://back; }", workers=1,
                    http=store_line(size="64m") + f"upstream back {{ server 127.0.0.1:{tally.port}; keepalive 8; }}")
    for n in range(300):
        # every third answer closes the connection after it said that it would stay
        request(gateway, "/a?keep=1" if n % 3 else "/a", f"{key}-{n}")
    for n in range(300):
        retry = request(gateway, "/a?keep=1" if n % 3 else "/a", f"{key}-{n}")
        assert retry.replayed or retry.status == 409
    assert tally.count("/a") <= 300
