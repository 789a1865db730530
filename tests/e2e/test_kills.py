"""Workers that are killed at any moment, memory errors, and growth."""
import os
import random
import re
import shutil
import signal
import subprocess
import threading

from harness.client import Http1, Http2, request
from harness.gateway import MODULE, NGINX, Gateway, rss_bytes
from harness.stores import store_line
from harness.tools import verify
from harness.wait import wait_until


def test_200_sigkills_under_load_change_no_answer_and_lose_no_block(guarded, tally):
    gateway = guarded("idempotency_lease 500ms; idempotency_wait 2s; idempotency_in_doubt retry;", workers=4,
                      http=store_line(size="16m"))
    gateway.allowed_alerts.append(r"exited on signal 9")
    stop, answers, lock, changed = threading.Event(), {}, threading.Lock(), []

    def load(seed):
        chooser = random.Random(seed)
        while not stop.is_set():
            try:
                with Http1(gateway.port, timeout=5) as client:
                    for _ in range(50):
                        key = f"key-{chooser.randrange(3000)}"
                        client.send("/a", key)
                        response = client.read()
                        if response.status != 200:
                            continue
                        with lock:
                            if answers.setdefault(key, response.body) != response.body:
                                changed.append(key)
            except (OSError, ValueError):
                continue

    threads = [threading.Thread(target=load, args=(seed,), daemon=True) for seed in range(8)]
    for thread in threads:
        thread.start()
    chooser = random.Random(7)
    for _ in range(200):
        victims = wait_until(gateway.workers)
        try:
            os.kill(chooser.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            pass
        wait_until(lambda: len(gateway.workers()) == 4)
    wait_until(lambda: len(answers) > 500, 60, "enough answers")
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not changed and len(answers) > 500
    assert verify(gateway) > 500
    for key, body in random.Random(1).sample(sorted(answers.items()), 200):
        assert request(gateway, "/a", key).body == body
    assert request(gateway, "/a", "a-new-one").status == 200


def test_a_hundred_thousand_requests_leave_the_workers_as_they_were(guarded, tally, tmp_path):
    gateway = guarded("", server="location /r { idempotency keys; proxy_pass http://127.0.0.1:PORT2; }",
                      run=False, workers=2, http=store_line(size="128m", sync="process") + """
        server { listen 127.0.0.1:BACK; keepalive_requests 1000000; location / { return 201 "made\\n"; } }
        upstream back { server 127.0.0.1:BACK; keepalive 64; }""")
    from harness.gateway import free_port
    back = str(free_port())
    gateway.parts["http"] = gateway.parts["http"].replace("BACK", back)
    gateway.parts["server"] = """location / { idempotency keys; proxy_http_version 1.1;
        proxy_set_header Connection ""; proxy_pass http://back; }"""
    gateway.start()
    script = tmp_path / "keys.lua"
    script.write_text("""
        local thread_number = 0
        function setup(thread) thread:set("id", thread_number) thread_number = thread_number + 1 end
        local n = 0
        request = function()
            n = n + 1
            -- two out of three are first requests, the third is a replay of the second, or a mismatch
            local key = string.format("%d-%d", id, n - (n % 3 == 0 and 1 or 0))
            local body = n % 300 == 0 and "other" or "{}"
            return wrk.format("POST", "/a", {["Idempotency-Key"] = key}, body)
        end""")

    def run(seconds):
        out = subprocess.run(["wrk", "-t2", "-c32", f"-d{seconds}s", "-s", str(script),
                              f"http://127.0.0.1:{gateway.port}"], capture_output=True, text=True, check=True).stdout
        return int(re.search(r"(\d+) requests in", out).group(1))

    try:
        run(2)
        total = 0
        before = {pid: rss_bytes(pid) for pid in gateway.workers()}
        while total < 100000:
            total += run(3)
        after = {pid: rss_bytes(pid) for pid in gateway.workers()}
        assert before.keys() == after.keys()
        for pid in before:
            assert after[pid] - before[pid] < 2 * 1024 * 1024, (before, after)
        verify(gateway)
    finally:
        gateway.stop()


def test_valgrind_finds_nothing(guarded, tally, tmp_path, key):
    """All kinds of requests, once under valgrind: no error, and no block that is lost at the end."""
    gateway = guarded("idempotency_max_response 10k; idempotency_wait 300ms; idempotency_lease 2s;"
                      "idempotency_fingerprint_body json ignore=/t; add_header X-R $idempotency_result;"
                      "proxy_read_timeout 2s;", run=False,
                      main="master_process off; daemon off;", workers=1)
    gateway.write()
    log = tmp_path / "valgrind.log"
    process = subprocess.Popen(
        ["valgrind", "--leak-check=full", "--num-callers=40", "--errors-for-leak-kinds=definite", "--error-exitcode=99",
         f"--suppressions={os.path.join(os.path.dirname(__file__), 'nginx.supp')}", f"--log-file={log}",
         *gateway.command()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(gateway), 60, "nginx under valgrind")
        scripts = ["a", "a?status=503", "a?rst=1", "a?len=20000", "a?len=20000&chunked=1&pieces=100", "a?nobody=204",
                   "a?len=9000&cut=10", "a?chunked=1&len=500&pieces=3", "a?sleep=0.2", "a?status=404"]
        for version in (1, 2):
            for n, script in enumerate(scripts * 4):
                name = f"{key}-{version}-{n}"
                for body in (b'{"a":1,"t":1}', b'{"t":2,"a":1.0}', b'{"a":2}', b"x" * 30000):
                    request(gateway, "/" + script, name, version, body=body)
        for n in range(20):
            client = Http1(gateway.port)
            client.send("/a?sleep=0.1", f"{key}-gone-{n}")
            client.reset()
            with Http2(gateway.port2) as other:
                other.reset_stream(other.send("/a?sleep=0.1", f"{key}-gone2-{n}"))
        request(gateway, "/a", "bad key")
        request(gateway, "/a")
        # With the ping. Without a wait for the last one, nginx would end while it runs, and leave its store open.
        wait_until(lambda: len(gateway.results()) >= 363, 60, "all requests to end")
    finally:
        process.send_signal(signal.SIGQUIT)
        code = wait_until(lambda: ended(process, gateway), 60, "nginx to end")[0]
    text = log.read_text()
    assert code == 0, text[-6000:]


def ended(process, gateway):
    """Its exit code, in a tuple. A signal that comes just before epoll_wait() waits for the next event: here it is."""
    try:
        return (process.wait(1),)
    except subprocess.TimeoutExpired:
        answers(gateway)
        return None


def answers(gateway):
    try:
        return request(gateway, "/ping", method="GET", body=None).status
    except OSError:
        return None
