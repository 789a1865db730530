"""Tally: an HTTP/1.1 backend that counts what it executes, and answers exactly as it is told.

The query of a request is its script:

    sleep=S        wait after executing, before answering
    gate=NAME      wait until the test opens the gate (Tally.open)
    status=N       the status; nobody=204 is a 204 without a body
    reason=TEXT    the reason phrase
    h=Name:Value   a header field; may be repeated
    len=N          a body of N bytes (every byte value); otherwise a line with the execution's number
    pieces=N       write the body in pieces of N bytes
    chunked=1      chunked coding
    cut=N          declare the whole length, close after N bytes
    chunkcut=1     chunked without the last chunk, then close
    eof=1          no length: the body ends with the connection
    rst=1          execute, then reset the connection
    drop=1         execute, then close without an answer
    trailer=X:Y    a trailer field after a chunked body
    gz=1           a gzip body
    sse=1          an event stream: one event at once, the rest when gate "sse" opens
    keep=1         keep the connection open for more requests
"""
import gzip
import hashlib
import socket
import struct
import threading
import urllib.parse


class Request:
    def __init__(self, method, target, headers, body):
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        path, _, query = target.partition("?")
        self.path = path
        self.query = urllib.parse.parse_qs(query, keep_blank_values=True)

    def header(self, name):
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def arg(self, name, default=None):
        return self.query.get(name, [default])[0]


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.requests = []
        self.gates = {}
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        self.open_all = False
        threading.Thread(target=self._accept, daemon=True).start()

    # what a test asks

    def count(self, path=None):
        """How often the path (or anything) was executed."""
        with self.lock:
            return sum(1 for r in self.requests if path is None or r.path == path)

    def seen(self, path):
        with self.lock:
            return [r for r in self.requests if r.path == path]

    def gate(self, name):
        with self.lock:
            return self.gates.setdefault(name, threading.Event())

    def open(self, name):
        self.gate(name).set()

    def close(self):
        with self.lock:
            for event in self.gates.values():
                event.set()
        # A thread that is inside accept() keeps the listener alive until it is woken.
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()

    # how it serves

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = connection.makefile("rb")
            while True:
                request = read_request(stream)
                if request is None:
                    break
                with self.lock:
                    self.requests.append(request)
                    number = len(self.requests)
                if not self._answer(connection, request, number):
                    break
        except OSError:
            pass
        finally:
            connection.close()

    def _answer(self, connection, request, number):
        arg = request.arg
        if arg("gate"):
            self.gate(arg("gate")).wait(60)
        if arg("sleep"):
            threading.Event().wait(float(arg("sleep")))
        if arg("rst"):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if arg("drop"):
            return False
        status = int(arg("status", arg("nobody", "200")))
        body = self._body(request, number)
        if arg("gz"):
            body = gzip.compress(body, mtime=0)
        head = [f"HTTP/1.1 {status} {arg('reason', 'Fine')}"]
        names = [value.partition(":")[0].lower() for value in request.query.get("h", [])]
        if "content-type" not in names and not arg("nobody"):
            head.append("Content-Type: " + ("text/event-stream" if arg("sse") else "text/plain"))
        head += [value.replace(":", ": ", 1) for value in request.query.get("h", [])]
        if arg("gz"):
            head.append("Content-Encoding: gzip")
        chunked = arg("chunked") or arg("chunkcut") or arg("trailer") or arg("sse")
        if arg("nobody"):
            body = b""
        elif chunked:
            head.append("Transfer-Encoding: chunked")
        elif not arg("eof"):
            head.append(f"Content-Length: {len(body)}")
        keep = arg("keep") and not arg("eof")
        head.append("Connection: " + ("keep-alive" if keep else "close"))
        connection.sendall("\r\n".join(head).encode("latin-1") + b"\r\n\r\n")
        if arg("sse"):
            connection.sendall(chunk(b"data: first\n\n"))
            self.gate("sse").wait(60)
            connection.sendall(chunk(b"data: last\n\n") + b"0\r\n\r\n")
            return False
        if arg("cut"):
            connection.sendall(body[:int(arg("cut"))])
            return False
        step = int(arg("pieces", "0")) or max(len(body), 1)
        for start in range(0, len(body), step):
            piece = body[start:start + step]
            connection.sendall(chunk(piece) if chunked else piece)
        if chunked and not arg("chunkcut"):
            trailers = "".join(f"{t.replace(':', ': ', 1)}\r\n" for t in request.query.get("trailer", []))
            connection.sendall(b"0\r\n" + trailers.encode() + b"\r\n")
        return bool(keep)

    def _body(self, request, number):
        if request.arg("len") is not None:
            size = int(request.arg("len"))
            seed = hashlib.sha256(str(number).encode()).digest() + bytes(range(256))
            return (seed * (size // len(seed) + 1))[:size]
        return f"execution {number} of {request.method} {request.path}\n".encode()


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def read_request(stream):
    line = stream.readline()
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers = []
    while True:
        line = stream.readline()
        if line in (b"\r\n", b"\n", b""):
            break
        key, _, value = line.decode("latin-1").rstrip("\r\n").partition(":")
        headers.append((key, value.strip()))
    length = 0
    for key, value in headers:
        if key.lower() == "content-length":
            length = int(value)
    if length > 32 * 1024 * 1024:
        body = hashed(stream, length)
    else:
        body = stream.read(length)
        if len(body) < length:
            return None
    return Request(method, target, headers, body)


def hashed(stream, length):
    """A large body is not kept: its length and digest are."""
    digest = hashlib.sha256()
    left = length
    while left:
        piece = stream.read(min(left, 1 << 20))
        if not piece:
            return b""
        digest.update(piece)
        left -= len(piece)
    return b"%d %s" % (length, digest.hexdigest().encode())
