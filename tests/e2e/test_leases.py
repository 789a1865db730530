"""Leases: a slow backend runs once, a dead executor loses its key in time, a stale one cannot complete."""
import json
import os
import signal
import time

import pytest

from harness.client import Http1, request
from harness.gateway import settle
from harness.wait import wait_until


def code(response):
    return json.loads(response.body)["code"]


def executing_worker(gateway):
    """The one worker that has a connection to the backend: with one worker there is no doubt."""
    (worker,) = gateway.workers()
    return worker


def test_a_backend_slower_than_three_leases_is_run_once(guarded, tally, key):
    gateway = guarded("idempotency_lease 500ms; idempotency_wait 0;")
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        began = time.monotonic()
        while time.monotonic() - began < 2.0:
            assert code(request(gateway, "/a?gate=g", key)) == "in-progress"
            settle(0.1)
        tally.open("g")
        assert first.read().status == 200
    assert request(gateway, "/a?gate=g", key).replayed and tally.count("/a") == 1


def test_a_killed_worker_is_in_progress_for_its_lease_and_then_unknown(guarded, tally, key):
    gateway = guarded("idempotency_lease 1500ms; idempotency_wait 0;", workers=1)
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        gateway.kill_worker(executing_worker(gateway))
        wait_until(lambda: gateway.workers())
        assert code(request(gateway, "/a?gate=g", key)) == "in-progress"
    wait_until(lambda: code(request(gateway, "/a?gate=g", key)) == "outcome-unknown", 5)
    settle(2.0)  # and stays so
    assert code(request(gateway, "/a?gate=g", key)) == "outcome-unknown"
    assert tally.count("/a") == 1


def test_under_retry_a_killed_workers_key_is_executed_again_after_its_lease(guarded, tally, key):
    gateway = guarded("idempotency_lease 1s; idempotency_wait 0; idempotency_in_doubt retry;", workers=1)
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        gateway.kill_worker(executing_worker(gateway))
        wait_until(lambda: gateway.workers())
        assert code(request(gateway, "/a?gate=g", key)) == "in-progress"
    tally.open("g")
    second = wait_until(lambda: (r := request(gateway, "/a?gate=g", key)).status == 200 and r, 5)
    assert not second.replayed
    assert [r.header("Idempotency-Attempt") for r in tally.seen("/a")] == [["1"], ["2"]]
    assert request(gateway, "/a?gate=g", key).same_as(second)


@pytest.mark.parametrize("policy", ["reject", "retry"])
def test_a_stopped_owner_that_wakes_cannot_overwrite_its_successor(guarded, tally, key, policy):
    gateway = guarded(f"idempotency_lease 1s; idempotency_wait 0; idempotency_in_doubt {policy};", workers=2)
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        owner = owner_of_upstream(gateway, tally.port)
        os.kill(owner, signal.SIGSTOP)
        try:
            tally.open("g")
            if policy == "retry":
                second = wait_until(lambda: ask(gateway, key), 10)
                assert not second.replayed and tally.count("/a") == 2
            else:
                wait_until(lambda: ask(gateway, key, 409, "outcome-unknown"), 10)
        finally:
            os.kill(owner, signal.SIGCONT)
        late = first.read()
    if policy == "retry":
        # Its own response is not the one that retries see, and so it is not shown.
        assert late.status == 409 and code(late) == "in-progress"
        assert request(gateway, "/a?gate=g", key).body == second.body
    else:
        # Nobody took the key over: the owner's word still counts.
        assert late.status == 200
        assert request(gateway, "/a?gate=g", key).body == late.body
    assert tally.count("/a") == (2 if policy == "retry" else 1)


def ask(gateway, key, status=200, wanted=None):
    """A request that may meet the stopped worker: then it is tried again."""
    try:
        with Http1(gateway.port, timeout=0.5) as client:
            client.send("/a?gate=g", key)
            response = client.read()
    except OSError:
        return None
    if response.status == status and (wanted is None or code(response) == wanted):
        return response
    return None


def owner_of_upstream(gateway, port):
    """The worker with an open connection to the backend's port."""
    for worker in gateway.workers():
        with open(f"/proc/{worker}/net/tcp", encoding="ascii") as table:
            inodes = {line.split()[9] for line in table.readlines()[1:]
                      if line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01"}
        for fd in os.listdir(f"/proc/{worker}/fd"):
            try:
                link = os.readlink(f"/proc/{worker}/fd/{fd}")
            except FileNotFoundError:
                continue
            if link.startswith("socket:[") and link[8:-1] in inodes:
                return worker
    raise AssertionError("nobody is connected to the backend")


def test_ttl_counts_from_completion_and_then_the_key_is_new(guarded, tally, key):
    gateway = guarded("idempotency_ttl 1s; idempotency_lease 600ms;")
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        settle(1.2)
        tally.open("g")
        assert first.read().status == 200
    assert request(gateway, "/a?gate=g", key).replayed
    wait_until(lambda: not request(gateway, "/a?gate=g", key).replayed, 5)
    assert tally.count("/a") == 2


def test_a_record_outlives_the_lease(guarded, tally, key):
    gateway = guarded("idempotency_lease 200ms;")
    request(gateway, "/a", key)
    settle(0.5)
    assert request(gateway, "/a", key).replayed and tally.count("/a") == 1
