"""The demo tells the truth: it ends well only if the balances were right."""
import os
import subprocess

import pytest

from harness.gateway import BUILD, ROOT

pytestmark = pytest.mark.memory_only("the demo declares its store itself")


def story(**environment):
    return subprocess.run([os.path.join(ROOT, "demo", "story"), BUILD], capture_output=True, text=True, check=False,
                          env=dict(os.environ, **environment), stdin=subprocess.DEVNULL, timeout=60)


def test_without_idem_8000_are_left_and_behind_it_9000():
    run = story()
    assert run.returncode == 0, run.stdout + run.stderr
    assert "The account has 8000: charged twice." in run.stdout
    assert "The account has 9000." in run.stdout and "Idempotent-Replayed: true" in run.stdout
    assert "outcome-unknown" in run.stdout


def test_the_story_fails_without_its_hero():
    run = story(DEMO_GUARD="off")
    assert run.returncode == 1 and "not what they should be" in run.stderr
