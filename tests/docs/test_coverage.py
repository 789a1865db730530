"""What the module has is what the pages tell: directives, variables, codes, log lines. And links lead somewhere."""
import re

import pytest

import sources
from fences import ROOT, anchors, links, pages, prose, read
from machine import nginx_test

CONFIGURE = "docs/configure.md"
TROUBLESHOOTING = "docs/troubleshooting.md"
SECTION = re.compile(r"^### (idempotency\w*)\n\n```text\nsyntax: +(.*)\ndefault: +(.*)\ncontext: +(.*)\n```$", re.M)


def sections():
    """(name, syntax, default, context) of each directive in the page."""
    return SECTION.findall(read(CONFIGURE))


def told_defaults():
    return {name: default for name, _, default, _ in sections()}


def test_every_directive_is_documented_and_nothing_else():
    assert sources.directives() == {name: context for name, _, _, context in sections()}
    assert len(sections()) > 20


def test_the_syntax_names_the_directive():
    for name, syntax, default, _ in sections():
        assert syntax.startswith(name + " ") and syntax.endswith(";")
        assert default == "none" or default.startswith(name + " ")


@pytest.mark.parametrize("default", [default for default in told_defaults().values() if default != "none"])
def test_a_default_is_taken(default, tmp_path):
    code, said = nginx_test("location", default, tmp_path)
    assert code == 0 and "[warn]" not in said, said


@pytest.mark.parametrize("field,source,told", [
    ("required", "1", "idempotency_required on;"),
    ("ttl", "24 * 3600 * 1000", "idempotency_ttl 24h;"),
    ("lease", "60000", "idempotency_lease 60s;"),
    ("wait", "1000", "idempotency_wait 1s;"),
    ("retry_after", "1000", "idempotency_retry_after 1s;"),
    ("conflict_status", "409", "idempotency_conflict_status 409;"),
    ("key_syntax", "IDEM_KEY_LENIENT", "idempotency_key_syntax lenient;"),
    ("key_format", "IDEM_KEY_ANY", "idempotency_key_format any;"),
    ("in_doubt", "NGX_HTTP_IDEMPOTENCY_REJECT", "idempotency_in_doubt reject;"),
    ("store_error_pass", "0", "idempotency_store_error fail;"),
    ("max_response", "1024 * 1024", "idempotency_max_response 1m;"),
])
def test_the_defaults_are_those_of_the_module(field, source, told):
    assert sources.merged_defaults()[field] == source
    assert told in told_defaults().values()


@pytest.mark.parametrize("name", ["retryable", "unknown"])
def test_the_default_statuses_are_those_of_the_engine(name):
    assert told_defaults()["idempotency_" + name] == f"idempotency_{name} {sources.default_statuses(name)};"


@pytest.mark.parametrize("name,expression", [
    ("idempotency_key", "$http_idempotency_key"), ("idempotency_scope", "$http_authorization"),
    ("idempotency_fingerprint", "$request_method $request_uri"),
])
def test_the_default_expressions_are_those_of_the_module(name, expression):
    assert f'ngx_str_set(&text, "{expression}");' in sources.module_source()
    assert told_defaults()[name].replace('"', "") == f"{name} {expression};"


def test_every_variable_is_documented_and_nothing_else():
    told = set(re.findall(r"^\| `\$(idempotency_\w+)` \|", read(CONFIGURE), re.M))
    assert sources.variables() == told and told


def test_every_result_is_documented_and_nothing_else():
    table = re.search(r"^\| result \|.*?\n\n", read(CONFIGURE), re.M | re.S)[0]
    assert sources.results() == re.findall(r"^\| `(\w+)` \|", table, re.M)


def test_every_code_is_documented_with_its_status():
    assert len(sources.problems()) == 8
    for status, code in sources.problems():
        assert re.search(rf"^\| `{code}` \| {status}\b", read(CONFIGURE), re.M), code
        assert f"\n### {code}\n" in read(TROUBLESHOOTING), code


@pytest.mark.parametrize("sentence", sources.key_faults())
def test_every_fault_of_a_key_is_explained(sentence):
    start = sentence.split(";")[0]
    assert f"| {start}" in read(TROUBLESHOOTING)


@pytest.mark.parametrize("line", sources.log_lines())
def test_a_log_line_is_explained(line):
    """It is a heading or stands between backticks, as a whole but for parts that the page leaves out by "…"."""
    for told in read(TROUBLESHOOTING).splitlines():
        for quoted in [told[4:]] if told.startswith("### ") else re.findall(r"`([^`]+)`", told):
            parts = [re.escape(part) for part in quoted.split("…")]
            if len(quoted) > 15 and re.fullmatch(".*?".join(parts), line):
                return
    raise AssertionError(f"{TROUBLESHOOTING} does not explain: {line}")


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page):
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(str(target.resolve().relative_to(ROOT))), f"{page}: {link}"


@pytest.mark.parametrize("page", pages())
def test_files_that_are_named_exist(page):
    for name in re.findall(r"`((?:tests|src|include|nginx|demo|docs|scripts)/[\w./-]+)`", prose(page)):
        assert "NAME" in name or (ROOT / name).exists(), f"{page}: {name}"
