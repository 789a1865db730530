"""A client that hangs up at any point: what was executed is stored, what was not is not kept."""
import pytest

from harness.client import Http1, Http2, request
from harness.stores import store_line
from harness.wait import wait_until

BUFFERING = pytest.mark.parametrize("buffering", ["on", "off"])


class Leaver:
    """A client of either protocol that leaves in one of several ways."""

    def __init__(self, gateway, how):
        self.how = how
        self.client = Http1(gateway.port) if how.startswith("h1") else Http2(gateway.port2)
        self.stream = None

    def send(self, *arguments, **more):
        self.stream = self.client.send(*arguments, **more)

    def leave(self):
        if self.how == "h1 reset":
            self.client.reset()
        elif self.how == "h2 reset_stream":
            self.client.reset_stream(self.stream)
        else:
            self.client.close()


HOWS = pytest.mark.parametrize("how", ["h1 close", "h1 reset", "h2 reset_stream", "h2 close"])


@HOWS
@BUFFERING
def test_while_the_backend_works(guarded, tally, key, how, buffering):
    gateway = guarded(f"proxy_buffering {buffering}; idempotency_wait 20s;")
    leaver = Leaver(gateway, how)
    leaver.send("/a?gate=g&len=100000", key)
    wait_until(lambda: tally.count("/a"))
    leaver.leave()
    tally.open("g")
    response = request(gateway, "/a?gate=g&len=100000", key)
    assert response.replayed and len(response.body) == 100000 and tally.count("/a") == 1


@HOWS
@BUFFERING
def test_while_the_response_is_sent(guarded, tally, key, how, buffering):
    gateway = guarded(f"proxy_buffering {buffering}; idempotency_max_response 8m; idempotency_wait 20s;",
                      http=store_line(size="32m"))
    leaver = Leaver(gateway, how)
    leaver.send("/a?len=5000000", key)
    if how.startswith("h1"):
        leaver.client.read_head()
    else:
        leaver.client.wait_for_response()
    leaver.leave()
    response = request(gateway, "/a?len=5000000", key)
    assert response.replayed and len(response.body) == 5000000 and tally.count("/a") == 1


@HOWS
def test_during_its_upload(guarded, tally, key, how):
    gateway = guarded()
    leaver = Leaver(gateway, how)
    if how.startswith("h1"):
        leaver.send("/a", key, body=b"x" * 1000, length=5000)
    else:
        leaver.send("/a", key, body=b"x" * 1000, end=False, length=False)
    leaver.leave()
    response = request(gateway, "/a", key, body=b"y")
    assert response.status == 200 and not response.replayed
    assert tally.count("/a") == 1


def test_a_thousand_fast_disconnects_are_a_thousand_executions(guarded, tally, key):
    gateway = guarded("idempotency_wait 20s;")
    for n in range(1000):
        client = Http1(gateway.port)
        client.send("/a?sleep=0.005", f"{key}-{n}")
        client.close()
    wait_until(lambda: len(gateway.results()) >= 1000, 60)
    executed = tally.count("/a")
    for n in range(0, 1000, 10):
        assert request(gateway, "/a?sleep=0.005", f"{key}-{n}").status == 200
    # A client may leave before its request is read whole: then nothing was executed, and its retry is the first.
    assert executed <= tally.count("/a") <= 1000
    for n in range(0, 1000, 10):
        assert request(gateway, "/a?sleep=0.005", f"{key}-{n}").replayed


def test_an_upload_shorter_than_announced_claims_nothing(guarded, tally, key):
    gateway = guarded("client_body_timeout 300ms;")
    with Http1(gateway.port) as client:
        client.send("/a", key, body=b"abc", length=10)
        with pytest.raises(ConnectionError):
            client.read()
    assert tally.count() == 0
    assert not request(gateway, "/a", key, body=b"abc").replayed


def test_a_failed_upload_with_an_error_page_does_not_hang(guarded, tally, key):
    """The error page leads through the phases again, with a request that was never whole."""
    gateway = guarded("client_max_body_size 10; error_page 413 408 400 /sorry;",
                      server=f"""
        location /sorry {{ idempotency keys; idempotency_methods POST GET; proxy_pass_request_body off;
                           proxy_set_header Content-Length ""; proxy_pass http://127.0.0.1:{tally.port}; }}""")
    with Http1(gateway.port) as client:
        client.send("/a", key, body=b"x" * 100, chunked=True)
        assert client.read().status == 413
    assert request(gateway, "/a", key, body=b"x").status == 200


def test_expect_100_continue(guarded, tally, key):
    gateway = guarded()
    with Http1(gateway.port) as client:
        client.send("/a", key, body=b"", length=3, headers=[("Expect", "100-continue")])
        assert client.read_head()[0] == 100
        client.send_raw(b"abc")
        assert client.read().status == 200
    assert tally.seen("/a")[0].body == b"abc"
    assert request(gateway, "/a", key, body=b"abc").replayed
