"""What the examples run on: nginx with the module, the demo's payment API, a compiler."""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time

from fences import ROOT

BUILD = pathlib.Path(os.environ.get("IDEM_BUILD", ROOT / "build")).resolve()
MODULE = pathlib.Path(os.environ.get("IDEM_MODULE", BUILD / "nginx" / "ngx_http_idempotency_module.so"))
NGINX = os.environ.get("IDEM_NGINX", shutil.which("nginx") or "/usr/sbin/nginx")

MAIN = """
load_module {module};
{user}
pid {dir}/nginx.pid;
error_log {dir}/error.log info;
events {{ worker_connections 256; }}
{main}
"""

HTTP = """
http {{
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    access_log off;
    {http}
}}
"""

SERVER = """
server {{
    listen 127.0.0.1:{port};
    {server}
}}
"""


def local(text, directory):
    """The places of a real machine, inside the test's directory."""
    text = text.replace("/var/log/nginx", str(directory)).replace("/var/backups", str(directory))
    return text.replace("/var/lib/idem", f"{directory}/idem")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def framed(context, text, directory, ports=None):
    """A whole configuration with text in the given context."""
    ports = ports or {}
    listen = ports.get(8080) or free_port()
    store = "" if re.search(r"^\s*idempotency_store keys ", text, re.M) else "idempotency_store keys memory:;"
    if context == "location":
        guard = "" if re.search(r"^\s*idempotency ", text, re.M) else "idempotency keys;"
        text = f"location / {{ {guard}\n{text}\nproxy_pass http://127.0.0.1:9000; }} location @other {{ return 502; }}"
    if context in ("location", "server"):
        text = SERVER.format(port=listen, server=text)
    if context != "main":
        text = HTTP.format(dir=directory, http=f"{store}\n{text}")
    text = re.sub(r"^\s*load_module .*$", "", text, flags=re.M)  # the frame loads the one that was built
    user = "user root;" if os.getuid() == 0 else ""
    text = MAIN.format(module=MODULE, user=user, dir=directory, main=text)
    if "http {" not in text:
        text += "http { }"
    text = re.sub(r"\blisten +(\d+);", lambda m: f"listen 127.0.0.1:{ports.get(int(m[1])) or free_port()};", text)
    text = text.replace("127.0.0.1:9000", f"127.0.0.1:{ports.get(9000, 9000)}")
    return local(text, directory)


def nginx_test(context, text, directory):
    """nginx -t: its exit code and what it says."""
    path = pathlib.Path(directory) / "nginx.conf"
    path.write_text(framed(context, text, directory), encoding="utf-8")
    run = subprocess.run([NGINX, "-t", "-p", str(directory), "-c", str(path)], capture_output=True, text=True,
                         check=False)
    return run.returncode, run.stderr


class Gateway:
    """A page's gateway, with the payment API behind it."""

    def __init__(self, fence, directory):
        self.dir = pathlib.Path(directory)
        self.api = subprocess.Popen([BUILD / "demo" / "payments", "0"], stdout=subprocess.PIPE, text=True)
        api_port = int(self.api.stdout.readline().split()[1])
        self.port = free_port()
        path = self.dir / "nginx.conf"
        path.write_text(framed(fence.words[1], fence.text, self.dir, {8080: self.port, 9000: api_port}),
                        encoding="utf-8")
        self.nginx = subprocess.Popen([NGINX, "-p", str(self.dir), "-c", str(path), "-g", "daemon off;"],
                                      stderr=subprocess.PIPE, text=True)
        self.wait()

    def wait(self):
        for _ in range(500):
            assert self.nginx.poll() is None, self.nginx.stderr.read()
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise AssertionError("nginx does not listen")

    def stop(self):
        for process in (self.nginx, self.api):
            process.terminate()
            process.wait(30)
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()
