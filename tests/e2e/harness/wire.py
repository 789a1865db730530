"""What lies between a gateway and a server: a wire that is slow or breaks, and a network that loses all."""
import atexit
import itertools
import os
import queue
import socket
import subprocess
import threading
import time


class Wire:
    """Passes TCP on to a port; what either side says arrives delay seconds later."""

    def __init__(self, port, delay=0.0):
        self.to = port
        self.delay = delay
        self.left = None  # how many bytes the server may still say, before its connection breaks
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to))
            except ConnectionRefusedError:
                client.close()
                continue
            except OSError:
                return
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pass_on(client, server, False)
            self._pass_on(server, client, True)

    def _pass_on(self, source, target, is_answer):
        late = queue.SimpleQueue()
        threading.Thread(target=self._hear, args=(source, late), daemon=True).start()
        threading.Thread(target=self._say, args=(target, late, is_answer), daemon=True).start()

    def _hear(self, source, late):
        data = b"more"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            late.put((time.monotonic() + self.delay, data))

    def _say(self, target, late, is_answer):
        while True:
            due, data = late.get()
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            if is_answer and self.left is not None:
                data = data[:self.left]
                self.left -= len(data)
            try:
                target.sendall(data)
                if not data:
                    target.shutdown(socket.SHUT_RDWR)
                    return
            except OSError:
                return


class Island:
    """A network of its own (network_namespaces(7)) with one address, which can be cut off: nothing is answered then,
    and nothing is refused."""

    numbers = itertools.count()

    def __init__(self):
        number = next(self.numbers)
        self.name = f"idem-{os.getpid()}-{number}"
        link = f"i{os.getpid()}n{number}"
        # of the 65536 in 198.18.0.0/15 (RFC 2544), four for each island of each run
        block = (os.getpid() * 8 + number) % 16384 * 4
        network = f"198.18.{block // 256}"
        self.here, self.address = f"{network}.{block % 256 + 1}", f"{network}.{block % 256 + 2}"
        self._ip("netns", "add", self.name)
        atexit.register(self.remove)
        self._ip("link", "add", link, "type", "veth", "peer", "name", "out", "netns", self.name)
        self._ip("addr", "add", self.here + "/30", "dev", link)
        self._ip("link", "set", link, "up")
        self._ip("-n", self.name, "addr", "add", self.address + "/30", "dev", "out")
        self._ip("-n", self.name, "link", "set", "out", "up")
        self.run = ["ip", "netns", "exec", self.name]

    @staticmethod
    def _ip(*words):
        subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL)

    def cut_off(self):
        self._ip("-n", self.name, "route", "add", "blackhole", self.here)

    def join(self):
        self._ip("-n", self.name, "route", "del", "blackhole", self.here)

    def remove(self):
        if self.name is not None:
            # the link goes with the network at its other end
            subprocess.run(["ip", "netns", "del", self.name], check=False)
            self.name = None


def islands_are_allowed():
    """Whether this machine lets us make networks: they are made by root alone."""
    try:
        return subprocess.run(["unshare", "--net", "ip", "link", "add", "idem-try", "type", "veth", "peer", "name", "idem-too"],
                              capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
