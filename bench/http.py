#!/usr/bin/python3
"""Requests per second through nginx: plain, guarded for the first time, replayed, and answered by return.

All kinds alternate in one run on one machine, and what counts are the ratios:

    first / plain       a guarded first request against plain proxy_pass
    replay / return     a replay against nginx answering by itself

Usage: http.py BUILD [--store NAME] [--rounds N] [--seconds S] [--connections C]
"""
import argparse
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BODY = '{"id":"ch_8e03978e40d543dd","amount":1000,"currency":"EUR","status":"succeeded"}'
# name: URI, connections, targets
STORES = {
    "memory": ("memory:?size={size}", 64, {"first/plain": 0.95, "replay/return": 0.90}),
    "lmdb": ("lmdb:{dir}/keys?size={size}", 256, {"first/plain": 0.35, "replay/return": 0.80}),
    "lmdb-completion": ("lmdb:{dir}/keys?size={size}&sync=completion", 256,
                        {"first/plain": 0.50, "replay/return": 0.80}),
    "redis": ("unix:{dir}/redis.socket", 256, {"first/plain": 0.50}),
    "lmdb-process": ("lmdb:{dir}/keys?size={size}&sync=process", 256, {"first/plain": 0.50, "replay/return": 0.80}),
}

BACKEND = """
worker_processes 1;
pid {dir}/backend.pid;
error_log {dir}/backend.log;
{user}
events {{ worker_connections 4096; }}
http {{
    access_log off;
    default_type application/json;
    {temp}
    server {{
        listen 127.0.0.1:{backend} backlog=1024;
        keepalive_requests 100000000;
        location / {{ return 201 '{body}'; }}
    }}
}}
"""

GATEWAY = """
load_module {module};
worker_processes 2;
pid {dir}/gateway.pid;
error_log {dir}/gateway.log;
{user}
events {{ worker_connections 4096; }}
http {{
    access_log off;
    default_type application/json;
    {temp}
    idempotency_store keys {store};
    upstream backend {{ server 127.0.0.1:{backend}; keepalive 512; keepalive_requests 100000000; }}
    server {{
        listen 127.0.0.1:{gateway} backlog=1024;
        keepalive_requests 100000000;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        location /plain {{ proxy_pass http://backend; }}
        location /guarded {{ idempotency keys; idempotency_wait 5s; proxy_pass http://backend; }}
        location /return {{ return 201 '{body}'; }}
    }}
}}
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def start_redis(directory):
    """A server that keeps nothing on the disk, on a socket in that directory."""
    path = os.path.join(directory, "redis.socket")
    server = subprocess.Popen(["redis-server", "--port", "0", "--dir", directory, "--unixsocket", path, "--save", ""],
                              stdout=subprocess.DEVNULL)
    for _ in range(100):
        with socket.socket(socket.AF_UNIX) as client:
            if client.connect_ex(path) == 0:
                return server
        time.sleep(0.05)
    sys.exit("redis-server did not start")


class Servers:
    def __init__(self, build, store, size):
        self.dir = tempfile.mkdtemp(prefix="idem-bench.")
        names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        values = {
            "dir": self.dir, "backend": free_port(), "gateway": free_port(), "body": BODY,
            "store": store.format(dir=self.dir, size=size),
            "module": os.path.join(os.path.abspath(build), "nginx", "ngx_http_idempotency_module.so"),
            "user": "user root;" if os.getuid() == 0 else "",
            "temp": " ".join(f"{name}_temp_path {self.dir}/{name};" for name in names),
        }
        self.redis = start_redis(self.dir) if store.startswith("unix:") else None
        self.url = f"http://127.0.0.1:{values['gateway']}"
        for name, text in (("backend", BACKEND), ("gateway", GATEWAY)):
            path = os.path.join(self.dir, name + ".conf")
            with open(path, "w", encoding="utf-8") as out:
                out.write(text.format(**values))
            subprocess.run(["nginx", "-p", self.dir, "-c", path], check=True)

    def stop(self):
        for name in ("gateway", "backend"):
            with open(os.path.join(self.dir, name + ".pid"), encoding="ascii") as pid:
                os.kill(int(pid.read()), signal.SIGTERM)
        time.sleep(0.3)
        if self.redis is not None:
            self.redis.terminate()
            self.redis.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def measure(url, prefix, few, seconds, connections):
    out = subprocess.run(
        ["wrk", "-t2", f"-c{connections}", f"-d{seconds}s", "-s", os.path.join(HERE, "keys.lua"), url, "--", prefix,
         str(few)], capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in out:
        sys.exit(f"{url} answered with errors:\n{out}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--store", choices=STORES, default="memory")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int)
    parser.add_argument("--size", default="1500m")
    options = parser.parse_args()
    store, connections, targets = STORES[options.store]
    connections = options.connections or connections
    servers = Servers(options.build, store, options.size)
    rates = {"plain": [], "first": [], "return": [], "replay": []}
    paths = {"plain": "/plain", "first": "/guarded", "return": "/return", "replay": "/guarded"}
    run = f"{os.getpid()}-{int(time.time())}"
    try:
        for warm in ("plain", "first", "return"):
            measure(servers.url + paths[warm], f"{run}-warm-{warm}", 0, 1, connections)
        measure(servers.url + "/guarded", run + "-few", 16, 1, connections)
        for n in range(options.rounds):
            # the order turns round, so that no kind is always measured first
            for kind in (list(rates) if n % 2 == 0 else list(reversed(rates))):
                few = 16 if kind == "replay" else 0
                prefix = run + "-few" if few else f"{run}-{kind}-{n}"
                rates[kind].append(measure(servers.url + paths[kind], prefix, few, options.seconds,
                                           connections))
    finally:
        servers.stop()
    for kind, values in rates.items():
        print(f"{kind:8} {statistics.median(values):9.0f} requests/s (median of {len(values)} x {options.seconds} s)")
    for name, target in targets.items():
        over, under = name.split("/")
        ratios = [a / b for a, b in zip(rates[over], rates[under])]
        print(f"{name:14} {statistics.median(ratios):.3f}  (from {min(ratios):.3f} to {max(ratios):.3f}; "
              f"target {target:.2f})")


main()
