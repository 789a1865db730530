"""What a store on a disk promises beyond the others: records outlive nginx, however it ends, and two nginx may share them."""
import collections
import json
import os
import random
import shutil
import subprocess
import threading
import time

import pytest

from harness.client import Http1, request
from harness.gateway import alive, settle
from harness.load import Load, code, key_of, target_of
from harness.stores import store_directory, store_line
from harness.wait import wait_until

pytestmark = pytest.mark.durable_only

BOTH = pytest.mark.parametrize("version", [1, 2])
SCRIPTS = ["status=201&reason=Made&h=Location:/o/1&h=Set-Cookie:a=1&h=Set-Cookie:b=2", "nobody=204&h=X-A:1", "len=0",
           "len=1", "len=65536", "len=300000", "chunked=1&len=5000&pieces=777", "eof=1&len=100", "gz=1&len=3000",
           "status=404", "status=500&reason=It+Broke"]


def answer_to(gateway, target, key, **more):
    """A response, or the code of an answer of the guard's own."""
    response = request(gateway, target, key, **more)
    return code(response) or response


def in_flight(gateway, tally, keys, target="/a?gate=g"):
    """Clients whose requests are executing."""
    clients = []
    for key in keys:
        clients.append(Http1(gateway.port))
        clients[-1].send(target, key)
    wait_until(lambda: tally.count("/a") == len(keys), what="all executions to begin")
    return clients


def executions(tally):
    """How often each key was executed."""
    with tally.lock:
        return collections.Counter(r.header("Idempotency-Key")[0] for r in tally.requests)


# Stopped and started


@BOTH
@pytest.mark.parametrize("quick", [True, False])
def test_responses_are_replayed_byte_for_byte_after_a_restart(guarded, tally, key, version, quick):
    gateway = guarded()
    firsts = [request(gateway, "/a?" + script, f"{key}-{n}", version) for n, script in enumerate(SCRIPTS)]
    gateway.stop(quick)
    gateway.start()
    for n, script in enumerate(SCRIPTS):
        again = request(gateway, "/a?" + script, f"{key}-{n}", version)
        assert again.replayed and again.same_as(firsts[n]), script
    assert tally.count("/a") == len(SCRIPTS)


def test_all_else_that_a_record_says_is_said_after_a_restart(guarded, tally, key):
    gateway = guarded("idempotency_max_response 10k;")
    request(gateway, "/a", key)
    request(gateway, "/a?rst=1", key + "-doubt")
    request(gateway, "/a?len=20000&status=201&h=Location:/o/9", key + "-large")
    request(gateway, "/a?status=503", key + "-released")
    for n in (1, 2):
        gateway.stop()
        gateway.start()
        assert answer_to(gateway, "/a", key, body=b"other") == "key-reused"
        assert answer_to(gateway, "/a?rst=1", key + "-doubt") == "outcome-unknown"
        large = request(gateway, "/a?len=20000&status=201&h=Location:/o/9", key + "-large")
        assert code(large) == "response-not-kept" and json.loads(large.body)["original_status"] == 201
        assert tally.count("/a") == 3 + n
        assert request(gateway, "/a?status=503", key + "-released").status == 503


def test_time_goes_on_while_nginx_is_stopped(guarded, tally, key):
    gateway = guarded("idempotency_ttl 2s;")
    first = request(gateway, "/a", key)
    gateway.stop()
    settle(2.1)
    gateway.start()
    assert request(gateway, "/a", key).body != first.body and tally.count("/a") == 2


# Killed


def killed_and_started(gateway, tally, keys):
    """Requests with the keys are executing when nginx is killed; then it is there again."""
    clients = in_flight(gateway, tally, keys)
    gateway.kill()
    for client in clients:
        with pytest.raises(OSError):
            client.read()
        client.close()
    gateway.start()


def test_what_was_executing_is_in_progress_for_its_lease_and_then_unknown(guarded, tally, key):
    gateway = guarded("idempotency_lease 3s; idempotency_wait 0;")
    keys = [f"{key}-{n}" for n in range(8)]
    killed_and_started(gateway, tally, keys)
    assert {answer_to(gateway, "/a?gate=g", k) for k in keys} == {"in-progress"}
    for k in keys:
        wait_until(lambda: answer_to(gateway, "/a?gate=g", k) == "outcome-unknown", 10)
    tally.open("g")
    gateway.kill()
    gateway.start()
    assert {answer_to(gateway, "/a?gate=g", k) for k in keys} == {"outcome-unknown"}
    assert tally.count("/a") == len(keys)


def test_under_retry_what_was_executing_is_executed_again_after_its_lease(guarded, tally, key):
    gateway = guarded("idempotency_lease 3s; idempotency_wait 0; idempotency_in_doubt retry;")
    killed_and_started(gateway, tally, [key])
    assert answer_to(gateway, "/a?gate=g", key) == "in-progress" and tally.count("/a") == 1
    tally.open("g")
    second = wait_until(lambda: (r := request(gateway, "/a?gate=g", key)).status == 200 and r, 10)
    assert not second.replayed and request(gateway, "/a?gate=g", key).same_as(second)
    assert [r.header("Idempotency-Attempt") for r in tally.seen("/a")] == [["1"], ["2"]]


def test_a_duplicate_that_comes_after_the_kill_waits_for_the_end_of_the_lease(guarded, tally, key):
    gateway = guarded("idempotency_lease 2s; idempotency_wait 30s;")
    killed_and_started(gateway, tally, [key])
    assert answer_to(gateway, "/a?gate=g", key) == "outcome-unknown" and tally.count("/a") == 1


def test_100_kills_of_all_of_nginx_under_load_lose_no_answer_and_execute_nothing_twice(guarded, tally):
    gateway = guarded("idempotency_lease 500ms; idempotency_wait 200ms;", http=store_line(size="128m"))
    load, chooser = Load([gateway]), random.Random(7)
    for _ in range(100):
        settle(chooser.uniform(0, 0.2))
        gateway.kill()
        gateway.start()
    wait_until(lambda: len(load.answers) > 500, 60, "enough answers")
    load.stop()
    assert not load.wrong, load.wrong[:5]
    doubts = ask_all_again(gateway, load, executions(tally))
    assert doubts, "no kill met an execution"
    assert set(executions(tally).values()) == {1}


def ask_all_again(gateway, load, executed):
    """Each key that a client asked for and that was executed; returns how many of them are in doubt."""
    numbers = [n for n in range(next(load.numbers)) if key_of(n) in executed]
    assert load.answers.keys() <= set(numbers)
    doubts = 0
    with Http1(gateway.port) as client:
        for n in numbers:
            response = wait_until(lambda: final(client, n), 10)
            if code(response) == "outcome-unknown":
                assert n not in load.answers, n
                doubts += 1
            else:
                assert response.replayed and response.same_as(load.answers.get(n, response)), n
    return doubts


def final(client, n):
    client.send(target_of(n), key_of(n))
    response = client.read()
    return code(response) != "in-progress" and response


# Two of them on one store


@pytest.fixture
def pair(guarded, tmp_path):
    def start(extra=""):
        line = store_line(size="32m", directory=str(tmp_path))
        return guarded(extra, http=line), guarded(extra, http=line)

    return start


def test_what_one_nginx_has_executed_the_other_replays(pair, tally, key):
    both = pair()
    for n in range(20):
        one, other = both if n % 2 else reversed(both)
        target = f"/a?len={n * 2000}&status=201&h=X-N:{n}"
        first = request(one, target, f"{key}-{n}")
        again = request(other, target, f"{key}-{n}")
        assert first.status == 201 and again.replayed and again.same_as(first)
        assert answer_to(other, target, f"{key}-{n}", body=b"other") == "key-reused"
    assert tally.count("/a") == 20


def test_what_one_nginx_executes_is_in_progress_at_the_other(pair, tally, key):
    one, other = pair("idempotency_wait 0; idempotency_lease 500ms;")
    (client,) = in_flight(one, tally, [key])
    for _ in range(20):
        assert answer_to(other, "/a?gate=g", key) == "in-progress"
        settle(0.1)
    tally.open("g")
    answer = client.read()
    client.close()
    assert request(other, "/a?gate=g", key).same_as(answer) and tally.count("/a") == 1


def test_a_duplicate_that_waits_at_one_nginx_is_answered_when_the_other_is_done(pair, tally, key):
    one, other = pair("idempotency_wait 30s;")
    (client,) = in_flight(one, tally, [key])
    answers = []

    def wait():
        answers.append((request(other, "/a?gate=g", key), time.monotonic()))

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(10)]
    for thread in threads:
        thread.start()
    settle(0.5)
    assert not answers
    done = time.monotonic()
    tally.open("g")
    first = client.read()
    client.close()
    for thread in threads:
        thread.join(60)
    # A waiter asks by itself within a second, also if nothing woke it.
    assert len(answers) == 10 and max(at for _, at in answers) - done < 5
    assert all(answer.replayed and answer.same_as(first) for answer, _ in answers) and tally.count("/a") == 1


def test_200_clients_of_two_nginx_with_one_key_are_one_execution(pair, tally, key):
    both = pair("idempotency_wait 30s;")
    answers = []
    threads = [threading.Thread(target=lambda n=n: answers.append(request(both[n % 2], "/a?sleep=0.2", key)), daemon=True)
               for n in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {(a.status, a.body) for a in answers} == {(200, answers[0].body)} and len(answers) == 200
    assert tally.count("/a") == 1


def test_when_one_nginx_is_killed_the_other_goes_on(pair, tally, key):
    one, other = pair("idempotency_lease 3s; idempotency_wait 0;")
    done = request(one, "/b", key + "-done")
    (client,) = in_flight(one, tally, [key])
    one.kill()
    client.close()
    assert request(other, "/b", key + "-done").same_as(done)
    assert answer_to(other, "/a?gate=g", key) == "in-progress"
    new = request(other, "/b", key + "-new")
    wait_until(lambda: answer_to(other, "/a?gate=g", key) == "outcome-unknown", 10)
    one.start()
    assert request(one, "/b", key + "-new").same_as(new)
    assert answer_to(one, "/a?gate=g", key) == "outcome-unknown"
    assert tally.count("/a") == 1 and tally.count("/b") == 2


def test_30_kills_of_one_nginx_under_load_are_not_noticed_at_the_other(pair, tally):
    one, other = pair("idempotency_lease 500ms; idempotency_wait 200ms;")
    load, chooser = Load([one, other]), random.Random(7)
    for _ in range(30):
        settle(chooser.uniform(0, 0.2))
        one.kill()
        one.start()
    wait_until(lambda: len(load.answers) > 500, 60, "enough answers")
    load.stop()
    assert not load.wrong, load.wrong[:5]
    assert load.broken[one] and not load.broken[other]
    for gateway in (one, other):
        ask_all_again(gateway, load, executions(tally))
    assert set(executions(tally).values()) == {1}


# Ended in the middle of work: gateway.stop() looks for workers that died of a signal


def test_30_quick_stops_under_load_end_each_worker_in_order(guarded, tally):
    gateway = guarded("idempotency_lease 500ms; idempotency_wait 200ms;")
    load, chooser = Load([gateway]), random.Random(7)
    for _ in range(30):
        settle(chooser.uniform(0.02, 0.1))
        gateway.stop()
        gateway.start()
    load.stop()
    assert not load.wrong, load.wrong[:5]
    ask_all_again(gateway, load, executions(tally))
    assert set(executions(tally).values()) == {1}


@pytest.mark.disk_only
def test_a_store_that_cannot_be_used_does_not_keep_nginx_from_being_stopped(guarded, tally, key):
    gateway = guarded()
    request(gateway, "/a", key)
    data = os.path.join(store_directory(gateway.dir), "data.mdb")
    os.truncate(data, 4096)
    assert gateway.test()[0] != 0
    pid = gateway.pid()
    subprocess.run(gateway.command("-s", "stop"), check=True, stderr=subprocess.DEVNULL)
    wait_until(lambda: not alive(pid), 40, "nginx to end")
    gateway.running = False


# Copied and restored


@pytest.mark.disk_only
@pytest.mark.parametrize("options", [[], ["-c"]], ids=["whole", "compact"])
def test_a_copy_that_was_made_under_load_is_a_store(guarded, tally, tmp_path, options):
    gateway = guarded("idempotency_lease 500ms; idempotency_wait 200ms;")
    directory, copy = store_directory(gateway.dir), tmp_path / "copy"
    load = Load([gateway])
    wait_until(lambda: len(load.answers) > 200, 60, "enough answers")
    copy.mkdir()
    before = dict(load.answers)
    subprocess.run(["mdb_copy", *options, directory, copy], check=True)
    load.stop()
    gateway.stop()
    shutil.rmtree(directory)
    os.mkdir(directory, 0o700)
    shutil.copy(copy / "data.mdb", directory)
    gateway.start()
    count = tally.count("/pay")
    for n, answer in before.items():
        again = request(gateway, target_of(n), key_of(n))
        assert again.replayed and again.same_as(answer), n
    assert tally.count("/pay") == count
    assert request(gateway, "/a", "new").status == 200
