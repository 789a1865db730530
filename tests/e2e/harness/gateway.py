"""A real nginx with the module, in a directory of its own, on free ports."""
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from .stores import placed, store_line
from .wait import wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = os.environ.get("IDEM_BUILD", os.path.join(ROOT, "build"))
MODULE = os.environ.get("IDEM_MODULE", os.path.join(BUILD, "nginx", "ngx_http_idempotency_module.so"))
NGINX = os.environ.get("IDEM_NGINX", shutil.which("nginx") or "/usr/sbin/nginx")

FRAME = """
load_module {module};
{modules}
{user}
worker_processes {workers};
pid {dir}/nginx.pid;
error_log {dir}/error.log info;
worker_shutdown_timeout {shutdown};
{main}
events {{ worker_connections 2048; }}
http {{
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    default_type text/plain;
    keepalive_requests 1000000;
    log_format story '$request_method $uri $status $idempotency_result attempt=$idempotency_attempt '
                     'wait=$idempotency_wait_time store=$idempotency_store_time';
    access_log {dir}/access.log story;
    {http}
    server {{
        listen 127.0.0.1:{port};
        listen 127.0.0.1:{port2} http2;
        {server}
    }}
}}
"""


def free_ports(count):
    """Different ones, because all are held until the last one is found."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def free_port():
    return free_ports(1)[0]


class Gateway:
    """nginx with http{} and server{} as a test gives them."""

    def __init__(self, directory, server, http=None, workers=2, main="", modules="", shutdown="30s"):
        self.dir = str(directory)
        self.parts = {"server": server, "http": store_line() if http is None else http, "workers": workers, "main": main,
                      "modules": modules, "shutdown": shutdown}
        self.port, self.port2 = free_ports(2)
        self.allowed_alerts = []
        self.running = False

    # life

    def write(self):
        parts = dict(self.parts, http=placed(self.parts["http"], self.dir))
        text = FRAME.format(module=MODULE, dir=self.dir, port=self.port, port2=self.port2,
                            user="user root;" if os.getuid() == 0 else "", **parts)
        with open(self.path("nginx.conf"), "w", encoding="utf-8") as out:
            out.write(text)

    def path(self, name):
        return os.path.join(self.dir, name)

    def command(self, *arguments):
        return [NGINX, "-p", self.dir, "-c", self.path("nginx.conf"), *arguments]

    def test(self):
        """nginx -t: its exit code and what it said."""
        self.write()
        run = subprocess.run(self.command("-t"), capture_output=True, text=True, check=False)
        return run.returncode, run.stderr

    def start(self):
        """As in production: nginx goes into the background, so that a binary upgrade is allowed."""
        for _ in range(5):
            self.write()
            with open(self.path("stderr"), "wb") as stderr:
                code = subprocess.call(self.command(), stdout=subprocess.DEVNULL, stderr=stderr)
            if code == 0 or "Address already in use" not in self.read("stderr"):
                break
            # somebody took a port between its finding and its use
            self.port, self.port2 = free_ports(2)
            os.unlink(self.path("error.log"))
        if code != 0:
            raise AssertionError("nginx did not start: " + self.read("stderr") + self.read("error.log"))
        self.running = True
        wait_until(lambda: self.read("nginx.pid").strip() and self.workers(), what="nginx to start")
        return self

    def stop(self, quick=True):
        if not self.running:
            return
        self.running = False
        pid = self.pid()
        os.kill(pid, signal.SIGTERM if quick else signal.SIGQUIT)
        wait_until(lambda: not alive(pid), 40, "nginx to end")
        self.check_log()

    def check_log(self):
        for line in self.read("error.log").splitlines() + self.read("stderr").splitlines():
            if re.search(r"\[alert\]|\[emerg\]|Sanitizer|runtime error", line):
                if not any(re.search(pattern, line) for pattern in self.allowed_alerts):
                    raise AssertionError("in nginx's log: " + line)

    def pid(self):
        """The master's; during a binary upgrade the file is away for a moment."""
        self.pid_was = int(wait_until(lambda: self.read("nginx.pid").strip(), what="the pid file"))
        return self.pid_was

    def workers(self, master=None):
        return children(master or self.pid())

    def kill(self):
        """SIGKILL to the master and to each worker. start() may follow."""
        pids = [self.pid(), *self.workers()]  # the master first: it would start other workers
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_until(lambda: not any(alive(pid) for pid in pids), what="nginx to be dead")
        self.running = False
        os.unlink(self.path("nginx.pid"))
        # nginx itself tries again, if a connection had the port for the moment
        self.allowed_alerts.append(r"\[emerg\].* bind\(\) to 127\.0\.0\.1:\d+ failed \(98:|still could not bind")

    def kill_worker(self, pid, number=signal.SIGKILL):
        self.allowed_alerts.append(rf"worker process {pid} exited on signal")
        os.kill(pid, number)

    def reload(self):
        """Writes the configuration and reloads; returns once new workers serve alone or it was refused."""
        old = set(self.workers())
        before = len(self.read("error.log"))
        self.write()
        os.kill(self.pid(), signal.SIGHUP)

        def done():
            log = self.read("error.log")
            if "[emerg]" in log[before:]:
                return "refused"
            # workers of an earlier reload may still be ending
            deaf = all(f"{pid}#{pid}: gracefully shutting down" in log for pid in old)
            return deaf and set(self.workers()) - old and "reloaded"

        return wait_until(done, 60, "the reload")

    # what it says

    def read(self, name):
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as text:
                return text.read()
        except FileNotFoundError:
            return ""

    def log(self):
        return self.read("error.log")

    def results(self, count=None):
        """The access log, line by line; waits for count lines."""
        if count is not None:
            wait_until(lambda: len(self.read("access.log").splitlines()) >= count, what="the access log")
        return self.read("access.log").splitlines()


def alive(pid):
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as text:
            return [int(child) for child in text.read().split()]
    except FileNotFoundError:
        return []


def rss_bytes(pid):
    """Memory of the process alone. Pages of a store are shared, also those that only it has touched so far."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as text:
        for line in text:
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1024
    return 0


def settle(seconds):
    """For promises about what does not happen: there is nothing to wait for but time."""
    time.sleep(seconds)
