"""Reload, more or fewer workers, a new binary: records survive, and what is in flight is answered and stored."""
import os
import signal
import threading

import pytest

from harness.client import Http1, request
from harness.gateway import alive
from harness.wait import wait_until


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_records_survive_a_reload_with_another_number_of_workers(guarded, tally, key, workers):
    gateway = guarded()
    first = request(gateway, "/a", key)
    gateway.parts["workers"] = workers
    assert gateway.reload() == "reloaded"
    wait_until(lambda: len(gateway.workers()) == workers)
    for _ in range(5):
        assert request(gateway, "/a", key).same_as(first)
    assert tally.count("/a") == 1


def test_a_request_in_flight_is_answered_and_stored_across_a_reload(guarded, tally, key):
    gateway = guarded("idempotency_wait 0;")
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        assert gateway.reload() == "reloaded"
        assert request(gateway, "/a?gate=g", key).status == 409
        tally.open("g")
        answer = first.read()
        assert answer.status == 200
    assert request(gateway, "/a?gate=g", key).body == answer.body and tally.count("/a") == 1


def test_a_waiter_of_the_new_workers_is_woken_by_the_old_ones(guarded, tally, key):
    gateway = guarded("idempotency_wait 20s;")
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        gateway.reload()
        answers = []
        waiter = threading.Thread(target=lambda: answers.append(request(gateway, "/a?gate=g", key)), daemon=True)
        waiter.start()
        tally.open("g")
        assert first.read().status == 200
        waiter.join(30)
    assert answers and answers[0].replayed


def test_a_client_that_left_before_a_reload_is_still_completed(guarded, tally, key):
    gateway = guarded("idempotency_wait 20s;")
    client = Http1(gateway.port)
    client.send("/a?gate=g", key)
    wait_until(lambda: tally.count("/a"))
    client.close()
    gateway.reload()
    tally.open("g")
    assert request(gateway, "/a?gate=g", key).replayed and tally.count("/a") == 1


@pytest.mark.memory_only("a store on a disk forgets nothing with another size")
def test_a_reload_that_would_forget_every_key_is_refused(guarded, tally, key):
    gateway = guarded()
    first = request(gateway, "/a", key)
    gateway.allowed_alerts.append(r"cannot be changed from 8192K to 4096K while nginx runs")
    good = gateway.parts["http"]
    gateway.parts["http"] = good.replace("8m", "4m")
    assert gateway.reload() == "refused"
    assert "every key in it would be forgotten" in gateway.log() and 'keep "size=8192K"' in gateway.log()
    assert request(gateway, "/a", key).same_as(first)
    gateway.parts["http"] = good
    assert gateway.reload() == "reloaded"
    assert request(gateway, "/a", key).same_as(first)


def test_reloads_under_load_never_execute_twice(guarded, tally):
    gateway = guarded("idempotency_wait 20s;")
    stop = threading.Event()
    failures = []

    def load(i):
        n = 0
        while not stop.is_set():
            n += 1
            try:
                bodies = {request(gateway, f"/k{i}", f"{i}-{n}").body for _ in range(2)}
            except OSError:
                continue  # an idle connection met the end of its worker: the client's retry is the next round
            if len(bodies) != 1:
                failures.append((i, n, bodies))

    threads = [threading.Thread(target=load, args=(i,), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        assert gateway.reload() == "reloaded"
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not failures and tally.count() > 50


def test_a_binary_upgrade_keeps_records_and_finishes_what_is_in_flight(guarded, tally, key):
    gateway = guarded("idempotency_wait 0;")
    first = request(gateway, "/a", key)
    with Http1(gateway.port) as flying:
        flying.send("/b?gate=g", key + "b")
        wait_until(lambda: tally.count("/b"))
        old = gateway.pid()
        os.kill(old, signal.SIGUSR2)
        wait_until(lambda: os.path.exists(gateway.path("nginx.pid.oldbin")), what="the new binary")
        new = wait_until(lambda: gateway.pid() != old and gateway.pid_was)
        wait_until(lambda: len(gateway.workers(new)) == 2)
        os.kill(old, signal.SIGWINCH)
        for _ in range(10):
            assert request(gateway, "/a", key).same_as(first)
        assert request(gateway, "/b?gate=g", key + "b").status == 409
        tally.open("g")
        answer = flying.read()
        assert answer.status == 200
        os.kill(old, signal.SIGQUIT)
        wait_until(lambda: not alive(old), 30)
    assert request(gateway, "/b?gate=g", key + "b").body == answer.body
    assert request(gateway, "/a", key).same_as(first) and tally.count() == 2
    # once more, from the new one: descriptors do not pile up
    before = len(os.listdir(f"/proc/{new}/fd"))
    os.kill(new, signal.SIGUSR2)
    newest = wait_until(lambda: gateway.pid() not in (old, new) and gateway.pid_was)
    wait_until(lambda: len(gateway.workers(newest)) == 2)
    os.kill(new, signal.SIGQUIT)
    wait_until(lambda: not alive(new), 30)
    assert request(gateway, "/a", key).same_as(first)
    assert len(os.listdir(f"/proc/{newest}/fd")) <= before + 1
