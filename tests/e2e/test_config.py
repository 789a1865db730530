"""Configurations: what is refused and how it is said, what is warned of, what is accepted."""
import os
import subprocess

import pytest

from harness.client import request
from harness.gateway import MODULE, ROOT

pytestmark = pytest.mark.memory_only("each configuration names its store itself")

BAD = [
    # (where, directive, words that the message must have)
    ("http", "idempotency_store x memory:?size=1k;", ["idempotency_store", "size=1k", "1m", "256g"]),
    ("http", "idempotency_store x memory: size=;", ["idempotency_store", "size=", "size=SIZE"]),
    ("http", "idempotency_store x memory: size=2m size=3m;", ["duplicate option", "size=3m", "idempotency_store"]),
    ("http", "idempotency_store x memory:?size=2m size=2m;", ["duplicate option", "size=2m"]),
    ("http", "idempotency_store x memory: speed=9;", ["idempotency_store", "speed=9", "size=SIZE", "timeout=TIME"]),
    ("http", "idempotency_store x memory: timeout=0;", ["idempotency_store", "timeout=0", "1ms", "60s"]),
    ("http", "idempotency_store x memory:/path;", ["idempotency_store", "memory:/path", "memory:?size=SIZE"]),
    ("http", "idempotency_store x memory:?size=1t;", ["idempotency_store", "size=1t", "1m", "256g"]),
    ("http", "idempotency_store x lmdb:x?size=17t;", ["idempotency_store", "size=17t", "1m", "16t"]),
    ("http", "idempotency_store x lmdb:x?size=1kt;", ["idempotency_store", "size=1kt", "1m", "16t"]),
    ("http", "idempotency_store x lmdb:x?size=t;", ["idempotency_store", "size=t", "1m", "16t"]),
    ("http", "idempotency_store x lmdb:;", ["idempotency_store", "lmdb:DIRECTORY"]),
    ("http", "idempotency_store x lmdb:x?sync=never;", ["sync=never", "sync=full", "sync=completion", "sync=process"]),
    ("http", "idempotency_store x lmdb:x?sync=full&sync=full;", ["duplicate option", "sync=full"]),
    ("http", "idempotency_store x lmdb:x; idempotency_store y lmdb:x/;", ["same directory", '"x" and "y"']),
    ("http", "idempotency_store x lmdb:no/where;", ["no/where", "make the directory above it"]),
    ("http", "idempotency_store x file:/tmp;", ["idempotency_store", "\"file:\"", "memory:"]),
    ("http", "idempotency_store x mysql://u:swordfish@localhost/db;", ["idempotency_store", '"mysql:"', "postgres://"]),
    ("http", "idempotency_store x postgres://u:swordfish@localhost/db?connections=0;", ['store "x"', "connections", "1 to 16"]),
    ("http", "idempotency_store x postgres://u@localhost/db?schema=A;", ['store "x"', "no good schema", "small letters"]),
    ("http", "idempotency_store off memory:;", ["idempotency_store", "off"]),
    ("http", 'idempotency_store "a b" memory:;', ["idempotency_store", "a b", "letters"]),
    ("http", "idempotency_store keys memory:;", ["duplicate store", "keys", "idempotency_store"]),
    ("http", "idempotency_store x;", ["invalid number of arguments", "idempotency_store"]),
    ("server", "idempotency_store x memory:;", ["idempotency_store", "not allowed here"]),
    ("location", "idempotency nowhere;", ["nowhere", "idempotency", '"keys"']),
    ("location", "idempotency keys watch;", ["idempotency", "watch", "observe"]),
    ("location", "idempotency off observe;", ["idempotency", "observe"]),
    ("location", "idempotency keys; idempotency off;", ["idempotency", "duplicate"]),
    ("location", "idempotency_key constant;", ["idempotency_key", "constant", "variable"]),
    ("location", "idempotency_key body=id;", ["idempotency_key", "id", "JSON Pointer"]),
    ("location", "idempotency_key body=;", ["idempotency_key", "JSON Pointer"]),
    ("location", "idempotency_key body=/a~2;", ["idempotency_key", "/a~2", "JSON Pointer"]),
    ("location", "idempotency_key $no_such_variable;", ["no_such_variable"]),
    ("location", "idempotency_key_syntax loose;", ["idempotency_key_syntax", "loose", '"lenient" or "strict"']),
    ("location", "idempotency_key_format guid;", ["idempotency_key_format", "guid", '"any" or "uuid"']),
    ("location", "idempotency_key_length 0 10;", ["idempotency_key_length", "0 10", "1 to 255"]),
    ("location", "idempotency_key_length 10 9;", ["idempotency_key_length", "10 9"]),
    ("location", "idempotency_key_length 1 256;", ["idempotency_key_length", "1 256", "255"]),
    ("location", "idempotency_key_length x 9;", ["idempotency_key_length", "x 9"]),
    ("location", "idempotency_required maybe;", ["idempotency_required", "maybe", '"on" or "off"']),
    ("location", "idempotency_methods post;", ["idempotency_methods", "post", "upper case"]),
    ("location", "idempotency_methods POST HEAD;", ["idempotency_methods", "HEAD"]),
    ("location", "idempotency_methods OPTIONS;", ["idempotency_methods", "OPTIONS"]),
    ("location", 'idempotency_methods "PO ST";', ["idempotency_methods", "PO ST"]),
    ("location", "idempotency_scope $remote_user needed;", ["idempotency_scope", "needed", "required"]),
    ("location", "idempotency_scope $a$;", ["invalid variable name"]),
    ("location", "idempotency_fingerprint $no_such_variable;", ["no_such_variable"]),
    ("location", "idempotency_fingerprint_body xml;", ["idempotency_fingerprint_body", "xml", '"raw", "json" or "off"']),
    ("location", "idempotency_fingerprint_body raw ignore=/a;", ["idempotency_fingerprint_body", "ignore=/a", "json"]),
    ("location", "idempotency_fingerprint_body json ignore=/a only=/b;", ["idempotency_fingerprint_body", "only=/b"]),
    ("location", "idempotency_fingerprint_body json only=b;", ["idempotency_fingerprint_body", "b", "JSON Pointer"]),
    ("location", "idempotency_fingerprint_body json skip=/b;", ["idempotency_fingerprint_body", "skip=/b"]),
    ("location", "idempotency_ttl 0;", ["idempotency_ttl", '"0"', "1s"]),
    ("location", "idempotency_ttl 11y;", ["idempotency_ttl", "11y", "10y"]),
    ("location", "idempotency_ttl soon;", ["idempotency_ttl", "soon", "1s"]),
    ("location", "idempotency_lease 10ms;", ["idempotency_lease", "10ms", "100ms"]),
    ("location", "idempotency_lease 2d;", ["idempotency_lease", "2d", "1d"]),
    ("location", "idempotency_wait 2h;", ["idempotency_wait", "2h", "1h"]),
    ("location", "idempotency_wait -1;", ["idempotency_wait", "-1"]),
    ("location", "idempotency_retry_after 0;", ["idempotency_retry_after", '"0"', "1s"]),
    ("location", "idempotency_conflict_status 410;", ["idempotency_conflict_status", "410", '"409" or "429"']),
    ("location", "idempotency_retryable 99;", ["idempotency_retryable", "99", "200 to 599"]),
    ("location", "idempotency_retryable none 503;", ["idempotency_retryable", "none"]),
    ("location", "idempotency_retryable 502;", ["502", "idempotency_retryable", "idempotency_unknown"]),
    ("location", "idempotency_unknown 5xx;", ["idempotency_unknown", "5xx", "200 to 599"]),
    ("location", "idempotency_in_doubt guess;", ["idempotency_in_doubt", "guess", '"reject" or "retry"']),
    ("location", "idempotency_in_doubt ask=/status;", ["this build lacks", "ask=/status", "idempotency_in_doubt"]),
    ("location", "idempotency_store_error ignore;", ["idempotency_store_error", "ignore", '"fail" or "pass"']),
    ("location", "idempotency_max_response lots;", ["idempotency_max_response", "lots", "512m"]),
    ("location", "idempotency_max_response 513m;", ["idempotency_max_response", "513m", "512m"]),
    ("location", 'idempotency_hide_header "X A";', ["idempotency_hide_header", "X A", "header field"]),
    ("location", "idempotency_docs_url /docs;", ["idempotency_docs_url", "/docs", "https://"]),
    ("location", "idempotency_docs_url 'https://x/<a>';", ["idempotency_docs_url", "https://x/<a>"]),
    ("location", "idempotency_status;", ["unknown directive", "idempotency_status"]),
]

ONCE = ["idempotency_key $http_a;", "idempotency_key_syntax strict;", "idempotency_key_format any;",
        "idempotency_key_length 1 2;", "idempotency_required on;", "idempotency_methods POST;",
        "idempotency_scope $remote_user;", "idempotency_fingerprint $uri;", "idempotency_fingerprint_body raw;",
        "idempotency_ttl 1h;", "idempotency_lease 10s;", "idempotency_wait 1s;", "idempotency_retry_after 1s;",
        "idempotency_conflict_status 429;", "idempotency_retryable 503;", "idempotency_unknown 502;",
        "idempotency_in_doubt retry;", "idempotency_store_error pass;", "idempotency_max_response 1k;",
        "idempotency_docs_url http://x/;"]


def check(nginx, where, text, location="proxy_pass http://127.0.0.1:9;"):
    parts = {"http": "", "server": "", "location": ""}
    parts[where] = text
    guard = "" if "idempotency keys" in text or "idempotency nowhere" in text or "idempotency off" in text \
        else "idempotency keys;"
    gateway = nginx(f"{parts['server']} location / {{ {guard} {parts['location']} {location} }}",
                    http=f"idempotency_store keys memory:; {parts['http']}", run=False)
    return gateway.test()


@pytest.mark.parametrize("where,text,words", BAD, ids=[text for _, text, _ in BAD])
def test_a_bad_value_is_refused_by_name_with_what_is_allowed(nginx, where, text, words):
    code, said = check(nginx, where, text)
    assert code == 1, said
    emergency = [line for line in said.splitlines() if "[emerg]" in line]
    assert len(emergency) == 1, said
    if "no_such_variable" not in text:  # nginx's own message, which names no line
        assert "nginx.conf:" in emergency[0], said
    for word in words:
        assert word in emergency[0], (word, emergency[0])


@pytest.mark.parametrize("text", ONCE)
def test_a_directive_given_twice_is_refused(nginx, text):
    code, said = check(nginx, "location", text + " " + text)
    assert code == 1 and "is duplicate" in said and text.split()[0] in said


@pytest.mark.parametrize("text", ONCE + [
    "idempotency_wait 0;", "idempotency_max_response 0;", "idempotency_hide_header A B; idempotency_hide_header C;",
    "idempotency_retryable none;", "idempotency_unknown none;", "idempotency_retryable 502; idempotency_unknown 504;",
    'idempotency_key "$http_a$http_b";', "idempotency_key ${http_a};", "idempotency_key body=/a/0;",
    "idempotency_fingerprint_body json ignore=/a ignore=/b;", "idempotency_fingerprint_body off;",
    "idempotency keys observe;", "idempotency off;", "idempotency_scope $http_authorization required;",
])
@pytest.mark.parametrize("where", ["http", "server", "location"])
def test_a_good_value_is_accepted_at_every_level_without_a_warning(nginx, where, text):
    code, said = check(nginx, where, text)
    assert code == 0 and "[warn]" not in said, said


@pytest.mark.parametrize("text,words", [
    ("proxy_next_upstream error non_idempotent;", ["proxy_next_upstream ... non_idempotent", "twice"]),
    ("idempotency_methods POST PUT;", ["PUT", "proxy_next_upstream off"]),
    ("idempotency_methods DELETE;", ["DELETE", "proxy_next_upstream off"]),
    ("error_page 502 = @other;", ["error_page 502", "@other", "second backend"]),
    ("idempotency_scope everybody;", ["idempotency_scope", "everybody", "share"]),
])
def test_what_would_undo_the_guard_is_warned_of(nginx, text, words):
    code, said = check(nginx, "location", text)
    assert code == 0
    (warning,) = [line for line in said.splitlines() if "[warn]" in line]
    for word in words:
        assert word in warning, (word, warning)


@pytest.mark.parametrize("text", ["idempotency_methods POST PUT; proxy_next_upstream off;",
                                  "idempotency off; proxy_next_upstream error non_idempotent;",
                                  "error_page 404 = @other;", "error_page 502 /sorry.html;"])
def test_what_is_harmless_is_not_warned_of(nginx, text):
    code, said = check(nginx, "location", text)
    assert code == 0 and "[warn]" not in said, said


@pytest.mark.parametrize("kind", ["fastcgi", "uwsgi", "scgi", "grpc"])
def test_other_upstreams_are_checked_too(nginx, kind):
    code, said = check(nginx, "location", f"{kind}_next_upstream error non_idempotent;",
                       f"{kind}_pass 127.0.0.1:9;")
    assert code == 0 and f"{kind}_next_upstream ... non_idempotent" in said


def test_caching_responses_to_post_in_a_guarded_location_is_refused(nginx, tmp_path):
    gateway = nginx("location / { idempotency keys; proxy_cache c; proxy_cache_methods POST;"
                    "proxy_pass http://127.0.0.1:9; }", run=False,
                    http=f"idempotency_store keys memory:; proxy_cache_path {tmp_path}/cache keys_zone=c:1m;")
    code, said = gateway.test()
    assert code == 1 and "proxy_cache" in said and "guarded" in said


def test_a_store_may_be_named_after_its_use(nginx, tally, key):
    gateway = nginx(f"location / {{ idempotency late; proxy_pass http://127.0.0.1:{tally.port}; }}",
                    http="server { listen 127.0.0.1:1; } include STORE;", run=False)
    with open(gateway.path("late.conf"), "w", encoding="utf-8") as late:
        late.write("idempotency_store late memory: size=2m timeout=5s;")
    gateway.parts["http"] = ""
    gateway.parts["server"] += "} include " + gateway.path("late.conf") + "; server {"
    code, said = gateway.test()
    assert code == 0, said


def test_without_a_store_the_module_does_nothing(nginx, tally, key):
    gateway = nginx(f"location / {{ proxy_pass http://127.0.0.1:{tally.port}; }}", http="")
    assert request(gateway, "/a", key).body != request(gateway, "/a", key).body


def test_only_what_nginx_looks_for_is_exported():
    names = subprocess.run(["nm", "-D", "--defined-only", MODULE], capture_output=True, text=True, check=True).stdout
    assert sorted(line.split()[2] for line in names.splitlines()) == \
        ["ngx_module_names", "ngx_module_order", "ngx_modules"]


def test_nginx_own_build_makes_the_module_too(tmp_path, nginx, tally, key, monkeypatch):
    """./configure --add-dynamic-module, as a distribution does it."""
    source = "/usr/share/nginx/src"
    for part in ("auto", "src"):
        os.symlink(os.path.join(source, part), tmp_path / part)
    script = f"""
        . {source}/conf_flags
        bash {source}/configure "${{NGX_CONF_FLAGS[@]}}" --builddir={tmp_path}/objs \
            --add-dynamic-module={ROOT}/nginx && make -f {tmp_path}/objs/Makefile -j2 modules"""
    run = subprocess.run(["bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    module = str(tmp_path / "objs" / "ngx_http_idempotency_module.so")
    names = subprocess.run(["nm", "-D", "--defined-only", module], capture_output=True, text=True, check=True).stdout
    assert len(names.splitlines()) == 3, names
    monkeypatch.setattr("harness.gateway.MODULE", module)
    gateway = nginx(f"location / {{ idempotency keys; proxy_pass http://127.0.0.1:{tally.port}; }}")
    assert request(gateway, "/a", key).body == request(gateway, "/a", key).body
