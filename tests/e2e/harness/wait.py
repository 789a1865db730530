"""Waiting for what can be observed, instead of sleeping and hoping."""
import time


def wait_until(condition, seconds=20.0, what="the condition"):
    """Returns the first true value of condition(); fails loudly when time is over."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {seconds} s")
        time.sleep(0.01)
