"""Runs the examples of the documentation. What kinds there are stands in fences.py."""
import os
import re
import subprocess
import time

import pytest

from fences import KINDS, ROOT, all_fences, fences, pages
from machine import BUILD, Gateway, local, nginx_test
from sources import log_lines


def examples(kind, condition=lambda fence: True):
    return pytest.mark.parametrize("fence", [f for f in all_fences(kind) if condition(f)], ids=str)


def lines_with_comments(fence):
    """("directive;", "what is said") of each line; braces make the whole block one."""
    if "{" in fence.text:
        said = re.search(r"#\s*(.*?)\s*$", fence.text, re.M)
        return [(fence.text, said[1])]
    return [tuple(part.strip() for part in line.split("#", 1)) for line in fence.text.splitlines() if line.strip()]


@pytest.mark.parametrize("page", pages())
def test_every_example_says_what_it_is(page):
    for fence in fences(page):
        assert KINDS.fullmatch(fence.info), f"{fence}: what is ```{fence.info}? See tests/docs/fences.py"


@examples("nginx", lambda fence: fence.words[-1] not in ("refused", "warned"))
def test_a_configuration_is_taken_without_a_warning(fence, tmp_path):
    code, said = nginx_test(fence.words[1], fence.text, tmp_path)
    assert code == 0, said
    assert "[warn]" not in said, said


@examples("nginx", lambda fence: fence.words[-1] == "refused")
def test_a_configuration_is_refused_as_the_page_says(fence, tmp_path):
    for directive, expected in lines_with_comments(fence):
        text = "idempotency_store keys memory:;\n" + directive if fence.words[1] == "http" else directive
        code, said = nginx_test(fence.words[1], text, tmp_path)
        assert code != 0, f"{directive} was taken"
        assert expected in said, f"{directive}: {said}"


@examples("nginx", lambda fence: fence.words[-1] == "warned")
def test_a_configuration_is_warned_of_as_the_page_says(fence, tmp_path):
    for directive, expected in lines_with_comments(fence):
        code, said = nginx_test(fence.words[1], directive, tmp_path)
        assert code == 0, said
        assert re.search(r"\[warn\].*" + re.escape(expected), said), f"{directive}: {said}"


@examples("sh by-hand")
def test_a_command_for_hands_is_proper_shell(fence):
    subprocess.run(["bash", "-n"], input=fence.text, text=True, check=True)


@examples("log")
def test_a_log_line_is_one_that_the_module_writes(fence):
    patterns = [".*?".join(re.escape(part) for part in text.split("…")) for text in log_lines()]
    for line in fence.text.splitlines():
        assert any(re.fullmatch(pattern, line) for pattern in patterns), f"{fence}: nothing writes: {line}"


def compile_c(source, *arguments):
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]
    libraries = [str(BUILD / "src" / "libidem.a"), "-lcrypto", "-ljansson", "-llmdb", "-lpthread"]
    run = subprocess.run(["cc", *strict, "-I", str(ROOT / "include"), str(source), *arguments,
                          *libraries],
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def told_by_console(page):
    return [fence for fence in fences(page) if fence.words[0] in ("console", "c")]


@pytest.mark.parametrize("page", [page for page in pages() if told_by_console(page)])
def test_commands_print_what_the_page_says(page, tmp_path):
    """The programs and commands of a page, from its top to its end, against the page's own gateway."""
    environment = dict(os.environ, PKG_CONFIG_PATH=str(BUILD / "meson-uninstalled"), CFLAGS="",
                       LD_LIBRARY_PATH=str(BUILD / "src"))
    gateway = None
    try:
        for fence in fences(page):
            if fence.words[-1] == "gateway":
                assert gateway is None, f"{fence}: a page has one gateway"
                gateway = Gateway(fence, tmp_path)
            elif fence.info.startswith("c program"):
                (tmp_path / fence.words[2]).write_text(fence.text, encoding="utf-8")
                compile_c(tmp_path / fence.words[2], "-o", str(tmp_path / "strict"))
            elif fence.info == "console":
                assert gateway or "localhost:8080" not in fence.text, f"{fence}: the page has no gateway"
                run_console(fence, gateway, tmp_path, environment)
    finally:
        if gateway is not None:
            gateway.stop()


def run_console(fence, gateway, directory, environment):
    commands = re.split(r"^\$ ", fence.text, flags=re.M)
    assert commands[0] == "", f"{fence} does not begin with a command"
    for part in commands[1:]:
        command, _, expected = part.partition("\n")
        if gateway is not None:
            command = command.replace("localhost:8080", f"127.0.0.1:{gateway.port}")
            command = local(command, directory)
        printed, matches = run_command(command, as_pattern(expected), directory, environment)
        assert matches, f"{fence}: {command} printed\n{printed}"


def run_command(command, pattern, directory, environment):
    """What it printed, and whether that is what was expected. A log may be written a moment after the answer came."""
    deadline = time.monotonic() + (10 if command.startswith("cat ") else 0)
    while True:
        run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=60,
                             cwd=directory, check=False)
        printed = run.stdout.replace("\r", "").rstrip("\n")
        matches = run.returncode == 0 and re.fullmatch(pattern, printed) is not None
        if matches or time.monotonic() >= deadline:
            return printed + run.stderr, matches
        time.sleep(0.05)


def as_pattern(expected):
    """A line of "…" alone is any lines; elsewhere "…" is anything within its line."""
    pattern = []
    for line in expected.rstrip("\n").split("\n"):
        if line == "…":
            pattern.append(r"(?:.*\n)*?")
        else:
            pattern.append(".*?".join(re.escape(piece) for piece in line.split("…")) + "\n")
    return "".join(pattern)[:-1] if pattern and pattern[-1].endswith("\n") else "".join(pattern) + ".*"
