"""Every way of passing a request on: FastCGI, uwsgi, SCGI, gRPC, and what their cut answers mean."""
import json
import socket
import struct
import threading

import grpc
import pytest

from harness.client import Http1, Http2, request
from harness.gateway import free_port
from harness.tools import Server, tool
from harness.wait import wait_until

BOTH = pytest.mark.parametrize("version", [1, 2])

WSGI = """
import time
executions = 0

def application(environ, start_response):
    global executions
    executions += 1
    if "slow" in environ["QUERY_STRING"]:
        time.sleep(0.5)
    start_response("201 Created", [("Content-Type", "text/plain"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
    return [b"execution %d attempt %s\\n" % (executions, environ.get("HTTP_IDEMPOTENCY_ATTEMPT", "none").encode())]
"""


@pytest.fixture
def backend(request, tmp_path):
    """A real server of the asked kind: its name and its port."""
    kind, port = request.param, free_port()
    if kind == "fastcgi":
        server = Server([tool("fcgi_tally"), f":{port}"], port)
    else:
        (tmp_path / "app.py").write_text(WSGI)
        option = {"uwsgi": "--socket", "scgi": "--scgi-socket"}[kind]
        server = Server(["uwsgi", "--plugin", "python3", option, f"127.0.0.1:{port}", "--wsgi-file",
                         str(tmp_path / "app.py"), "--need-app", "--master", "--die-on-term"], port)
    yield kind, port
    server.stop()


KINDS = pytest.mark.parametrize("backend", ["fastcgi", "uwsgi", "scgi"], indirect=True)

PARAMS = """
    {kind}_param REQUEST_METHOD $request_method; {kind}_param QUERY_STRING $query_string;
    {kind}_param PATH_INFO $uri; {kind}_param CONTENT_LENGTH $content_length; {kind}_param REQUEST_URI $request_uri;
    {kind}_param SERVER_PROTOCOL $server_protocol; {kind}_param SERVER_NAME g; {kind}_param SERVER_PORT 80;
"""


def location(kind, port, extra=""):
    return f"location / {{ idempotency keys; {extra} {PARAMS.format(kind=kind)} {kind}_pass 127.0.0.1:{port}; }}"


@BOTH
@KINDS
@pytest.mark.parametrize("buffering", ["on", "off"])
def test_a_response_is_kept_and_replayed(nginx, backend, key, version, buffering):
    kind, port = backend
    gateway = nginx(location(kind, port, f"{kind}_buffering {buffering};"))
    first = request(gateway, "/a", key, version)
    assert first.status == 201 and b"attempt 1" in first.body and first.all("Set-Cookie") == ["a=1", "b=2"]
    second = request(gateway, "/a", key, version)
    assert second.replayed and second.same_as(first)


@KINDS
def test_a_client_that_leaves_is_awaited(nginx, backend, key):
    kind, port = backend
    gateway = nginx(location(kind, port, "idempotency_wait 20s;"), workers=1)
    for version, client in ((1, Http1(gateway.port)), (2, Http2(gateway.port2))):
        client.send("/a?slow", key + str(version))
        wait_until(lambda: connected(gateway, port))
        client.close()
        response = request(gateway, "/a?slow", key + str(version))
        assert response.status == 201 and response.replayed


def connected(gateway, port):
    (worker,) = gateway.workers()
    with open(f"/proc/{worker}/net/tcp", encoding="ascii") as table:
        return any(line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01"
                   for line in table.readlines()[1:])


def test_a_fastcgi_program_that_dies_leaves_the_key_in_doubt(nginx, key):
    port = free_port()
    server = Server([tool("fcgi_tally"), f":{port}"], port)
    gateway = nginx(location("fastcgi", port))
    assert request(gateway, "/a?die", key).status == 502
    assert json.loads(request(gateway, "/a?die", key).body)["code"] == "outcome-unknown"
    server.stop()


def fastcgi_record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content


@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("records,whole", [
    ([(6, b"Content-Type: text/plain\r\n\r\nbody"), (6, b""), (3, bytes(8))], True),
    ([(6, b"Content-Type: text/plain\r\n\r\n"), (6, b"body"), (3, bytes(8))], True),
    ([(6, b"Status: 204\r\n\r\n"), (3, bytes(8))], True),
    ([(6, b"Content-Type: text/plain\r\n\r\nbody")], False),
    ([(6, b"Content-Type: text/plain\r\n\r\n")], False),
    ([(6, b"Content-Type: text/plain\r\nContent-Length: 9\r\n\r\nbody"), (6, b""), (3, bytes(8))], False),
    ([(6, b"Content-Type: text/plain\r\nContent-Length: 9\r\n\r\n")], False),
])
def test_a_fastcgi_answer_is_whole_when_its_end_record_came(nginx, key, buffering, records, whole):
    listener = socket.create_server(("127.0.0.1", 0))
    served = []

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.recv(65536)
            served.append(1)
            for kind, content in records:
                connection.sendall(fastcgi_record(kind, content))
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    gateway = nginx(location("fastcgi", listener.getsockname()[1], f"fastcgi_buffering {buffering};"))
    request(gateway, "/a", key)
    retry = request(gateway, "/a", key)
    listener.close()
    assert retry.replayed == whole and len(served) == 1
    if not whole:
        assert json.loads(retry.body)["code"] == "outcome-unknown"


class Grpc:
    """A gRPC server with one unary method that counts, and a client of it through the gateway."""

    def __init__(self):
        from concurrent import futures
        self.attempts = []
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        handler = grpc.unary_unary_rpc_method_handler(self._charge)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pay.Api", {"Charge": handler}),))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def _charge(self, message, context):
        metadata = dict(context.invocation_metadata())
        self.attempts.append(metadata.get("idempotency-attempt"))
        context.set_trailing_metadata((("x-number", str(len(self.attempts))),))
        if message == b"refuse":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no money")
        return b"charged %s as %d" % (message, len(self.attempts))


def call(gateway, message, key):
    with grpc.insecure_channel(f"127.0.0.1:{gateway.port2}") as channel:
        method = channel.unary_unary("/pay.Api/Charge")
        try:
            answer, state = method.with_call(message, metadata=(("idempotency-key", key),), timeout=10)
            return "OK", answer, dict(state.trailing_metadata())
        except grpc.RpcError as error:
            return error.code().name, error.details(), dict(error.trailing_metadata())


def test_a_unary_grpc_call_is_replayed_with_its_trailers(nginx, key):
    server = Grpc()
    gateway = nginx(f"location / {{ idempotency keys; grpc_pass grpc://127.0.0.1:{server.port}; }}")
    first = call(gateway, b"10", key)
    second = call(gateway, b"10", key)
    assert first[:2] == second[:2] == ("OK", b"charged 10 as 1")
    assert first[2]["x-number"] == second[2]["x-number"] == "1"
    refused, again = call(gateway, b"refuse", key + "2"), call(gateway, b"refuse", key + "2")
    assert refused[:2] == again[:2] == ("FAILED_PRECONDITION", "no money")
    assert server.attempts == ["1", "1"]
    assert call(gateway, b"11", key)[0] == "UNKNOWN"  # 422, which gRPC has no code for
    server.server.stop(0)
