"""Clients: HTTP/1.1 over a plain socket, and HTTP/2 by python3-h2; both may stop at any point."""
import socket
import struct

import h2.config
import h2.connection
import h2.events
import h2.exceptions


class Response:
    def __init__(self, status, reason, headers, body, trailers=()):
        self.status = status
        self.reason = reason
        self.headers = headers
        self.body = body
        self.trailers = list(trailers)

    def all(self, name):
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def get(self, name):
        values = self.all(name)
        return values[0] if values else None

    @property
    def replayed(self):
        return self.get("Idempotent-Replayed") == "true"

    def same_as(self, other):
        """Equal but for what each answer has anew."""
        anew = {"date", "idempotent-replayed", "connection", "keep-alive"}

        def rest(response):
            return [(k.lower(), v) for k, v in response.headers if k.lower() not in anew]

        return (self.status, self.reason, rest(self), self.body) == \
               (other.status, other.reason, rest(other), other.body)


class Http1:
    """One connection."""

    def __init__(self, port, timeout=15):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.stream = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send_raw(self, data):
        self.socket.sendall(data)

    def send(self, target, key=None, body=b"{}", method="POST", headers=(), chunked=False, length=None):
        fields = [("Host", "gateway"), *headers]
        if key is not None:
            fields.append(("Idempotency-Key", key))
        if chunked:
            fields.append(("Transfer-Encoding", "chunked"))
        elif body is not None:
            fields.append(("Content-Length", str(len(body) if length is None else length)))
        head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields) + "\r\n"
        data = head.encode("latin-1")
        if chunked:
            step = 7 if len(body) < 10000 else 4099
            pieces = (body[start:start + step] for start in range(0, len(body), step))
            data += b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        elif body is not None:
            data += body
        self.send_raw(data)

    def read_head(self):
        line = self._head_line()
        version, _, rest = line.decode("latin-1").rstrip("\r\n").partition(" ")
        assert version.startswith("HTTP/1."), line
        status, _, reason = rest.partition(" ")
        headers = []
        while True:
            line = self._head_line()
            if line == b"\r\n":
                break
            key, _, value = line.decode("latin-1").rstrip("\r\n").partition(": ")
            headers.append((key, value))
        return int(status), reason, headers

    def _head_line(self):
        line = self.stream.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the connection was closed without a whole head")
        return line

    def read(self):
        status, reason, headers = self.read_head()
        while status == 100:
            status, reason, headers = self.read_head()
        response = Response(status, reason, headers, b"")
        if response.get("Transfer-Encoding") == "chunked":
            response.body, response.trailers = self._read_chunked()
        elif response.get("Content-Length") is not None:
            length = int(response.get("Content-Length"))
            response.body = self.stream.read(length)
            if len(response.body) < length:
                raise ConnectionError("the body was cut short")
        elif status not in (204, 304):
            response.body = self.stream.read()
        return response

    def _read_chunked(self):
        body = b""
        while True:
            size = self.stream.readline()
            if not size:
                raise ConnectionError("the body was cut short")
            length = int(size, 16)
            if length == 0:
                break
            body += self.stream.read(length)
            self.stream.readline()
        trailers = []
        while True:
            line = self.stream.readline()
            if line in (b"\r\n", b""):
                return body, trailers
            key, _, value = line.decode("latin-1").rstrip("\r\n").partition(": ")
            trailers.append((key, value))

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        self.stream.close()
        self.socket.close()


class Http2:
    """One connection without TLS, one request at a time."""

    def __init__(self, port, timeout=15):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8",
                                           validate_outbound_headers=False)
        self.h2 = h2.connection.H2Connection(config)
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(1 << 28)
        self.h2.update_settings({4: 1 << 28})
        self.flush()
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def send(self, target, key=None, body=b"{}", method="POST", headers=(), end=True, length=True):
        stream = self.h2.get_next_available_stream_id()
        fields = [(":method", method), (":path", target), (":scheme", "http"), (":authority", "gateway")]
        fields += [(k.lower(), v) for k, v in headers]
        if key is not None:
            fields.append(("idempotency-key", key))
        if body is not None and length:
            fields.append(("content-length", str(len(body))))
        self.h2.send_headers(stream, fields, end_stream=body is None)
        if body is not None:
            self.send_body(stream, body, end)
        self.flush()
        return stream

    def send_body(self, stream, body, end=True):
        try:
            self._send_body(stream, body, end)
        except h2.exceptions.StreamClosedError:
            pass  # answered before the body was sent

    def _send_body(self, stream, body, end):
        sent = 0
        while sent < len(body):
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if room == 0:
                self.flush()
                if self._was_answered(stream):
                    return  # without the rest of the body
                self._receive()
                continue
            self.h2.send_data(stream, body[sent:sent + room])
            sent += room
        if end:
            self.h2.send_data(stream, b"", end_stream=True)
        self.flush()

    def _was_answered(self, stream):
        ends = (h2.events.StreamEnded, h2.events.StreamReset)
        return any(isinstance(event, ends) and event.stream_id == stream for event in self.events)

    def reset_stream(self, stream):
        self.h2.reset_stream(stream, error_code=8)
        self.flush()

    def _receive(self):
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the connection was closed")
        events = self.h2.receive_data(data)
        for event in events:
            if isinstance(event, h2.events.DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.flush()
        self.events += events

    def wait_for_response(self):
        """Returns when the first header of a response is here."""
        while not any(isinstance(event, h2.events.ResponseReceived) for event in self.events):
            self._receive()

    def read(self, stream):
        response = Response(0, "", [], b"")
        while True:
            while not self.events:
                self._receive()
            event = self.events.pop(0)
            if getattr(event, "stream_id", None) != stream:
                continue
            if isinstance(event, h2.events.ResponseReceived):
                response.status = int(dict(event.headers)[":status"])
                response.headers = [(k, v) for k, v in event.headers if not k.startswith(":")]
            elif isinstance(event, h2.events.TrailersReceived):
                response.trailers = list(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                response.body += event.data
            elif isinstance(event, h2.events.StreamReset):
                raise ConnectionError("the stream was reset")
            elif isinstance(event, h2.events.StreamEnded):
                return response

    def close(self):
        self.socket.close()


def request(gateway, target, key=None, version=1, **more):
    """One request on a connection of its own."""
    if version == 1:
        with Http1(gateway.port) as client:
            client.send(target, key, **more)
            return client.read()
    with Http2(gateway.port2) as client:
        return client.read(client.send(target, key, **more))
