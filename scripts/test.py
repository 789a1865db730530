#!/usr/bin/python3
"""Runs every test there is and ends with one line: how many passed, how many failed.

A test that was skipped counts as failed: nothing is proven by it.
"""
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MESON = "/usr/bin/meson" if os.path.exists("/usr/bin/meson") else "meson"
SANITIZED = {
    "asan": ["-Db_sanitize=address,undefined", "-Db_lundef=false"],
    "tsan": ["-Db_sanitize=thread", "-Dnginx=disabled"],
}


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = []

    def add(self, name, ok):
        if ok:
            self.passed += 1
        else:
            self.failed.append(name)


def meson_tests(build, label, tally, suites=()):
    """Builds and runs the tests of one build directory."""
    if subprocess.call(["ninja", "-C", build], stdout=subprocess.DEVNULL) != 0:
        print("FAILED to build", build)
        tally.add(label + " build", False)
        return
    log = os.path.join(build, "meson-logs", "testlog.json")
    if os.path.exists(log):
        os.unlink(log)
    command = [MESON, "test", "-C", build, "--no-rebuild", "--print-errorlogs"]
    for suite in suites:
        command += ["--suite", suite]
    subprocess.call(command)
    count = 0
    if os.path.exists(log):
        with open(log, encoding="utf-8") as lines:
            for line in lines:
                result = json.loads(line)
                tally.add(label + " " + result["name"], result["result"] in ("OK", "EXPECTEDFAIL"))
                count += 1
    if count == 0:
        tally.add(label + " ran no test", False)


def sanitized(build, kind, tally):
    directory = build + "-" + kind
    if not os.path.exists(os.path.join(directory, "build.ninja")):
        if subprocess.call([MESON, "setup", directory, *SANITIZED[kind]],
                           stdout=subprocess.DEVNULL) != 0:
            tally.add(kind + " setup", False)
            return
    meson_tests(directory, kind, tally, ["threads"] if kind == "tsan" else [])


# The same stories over a store that answers later, as one behind a socket does.
LATE = ["tests/e2e/" + name for name in ("test_outcomes.py", "test_client_gone.py", "test_replay_identity.py",
                                         "test_internal_redirects.py", "test_leases.py", "test_limits.py")]
# To fill a store takes too long there, and memory is measured elsewhere.
LATE_WITHOUT = "not full_store and not finds_no_room and not gigabyte and not bounded_memory"


# Under the sanitizers: what takes requests and configurations apart. Memory is measured without them, and
# nginx does not hand the preloaded libraries on to a new binary.
SANITIZED_STORIES = ["tests/e2e/" + name for name in ("test_keys.py", "test_scope_and_fingerprint.py",
                                                      "test_upstreams.py", "test_limits.py", "test_reload.py")]
# And over a store with a thread of its own, and one behind a socket.
STORES_SANITIZED = ["tests/e2e/" + name for name in ("test_durable.py", "test_races.py", "test_outcomes.py")]
# What says nothing of any store.
WITHOUT_STORE = ["test_config.py", "test_demo.py"]
MODULE = os.path.join("nginx", "ngx_http_idempotency_module.so")
LATE_MODULE = os.path.join("tests", "e2e", "tools", "ngx_http_idempotency_module_late.so")


def pytest(build, paths, label, tally, *options, **more):
    report = os.path.join(build, label + ".xml")
    if os.path.exists(report):
        os.unlink(report)
    environment = dict(os.environ, IDEM_BUILD=os.path.abspath(build), PYTHONDONTWRITEBYTECODE="1", **more)
    subprocess.call(["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml", report,
                     *options, *paths], cwd=ROOT, env=environment)
    if not os.path.exists(report):
        tally.add(label + " did not run", False)
        return
    cases = ElementTree.parse(report).getroot().findall(".//testcase")
    for case in cases:
        bad = any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
        tally.add(label + " " + case.get("classname", "") + "." + case.get("name", ""), not bad)
    if not cases:
        tally.add(label + " ran no test", False)


def main():
    os.chdir(ROOT)
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    tally = Tally()
    meson_tests(build, "unit", tally)
    sanitized(build, "asan", tally)
    sanitized(build, "tsan", tally)
    pytest(build, ["tests/e2e"], "e2e", tally)
    pytest(build, ["tests/e2e"], "lmdb", tally, *["--ignore=tests/e2e/" + name for name in WITHOUT_STORE],
           IDEM_STORE="lmdb")
    pytest(build, ["tests/e2e"], "redis", tally, *["--ignore=tests/e2e/" + name for name in WITHOUT_STORE],
           IDEM_STORE="redis")
    asan = os.path.abspath(build + "-asan")
    nginx_asan = os.path.abspath("scripts/nginx-asan")
    pytest(build, LATE, "late", tally, "-k", LATE_WITHOUT,
           IDEM_MODULE=os.path.abspath(os.path.join(build, LATE_MODULE)))
    pytest(build, LATE, "asan-late", tally, "-k", LATE_WITHOUT,
           IDEM_NGINX=nginx_asan, IDEM_MODULE=os.path.join(asan, LATE_MODULE))
    pytest(build, SANITIZED_STORIES, "asan-e2e", tally, "-k", "not gigabyte and not bounded_memory and not binary_upgrade",
           IDEM_NGINX=nginx_asan, IDEM_MODULE=os.path.join(asan, MODULE))
    for store in ("lmdb", "redis"):
        pytest(build, STORES_SANITIZED, "asan-" + store, tally, IDEM_STORE=store,
               IDEM_NGINX=nginx_asan, IDEM_MODULE=os.path.join(asan, MODULE))
    pytest(build, ["tests/docs"], "docs", tally)
    for name in tally.failed:
        print("FAILED", name)
    print(f"{tally.passed} passed, {len(tally.failed)} failed")
    return 1 if tally.failed or tally.passed == 0 else 0


sys.exit(main())
