"""Reads the sources: what the module and the engine can say."""
import re

from fences import ROOT

LITERAL = r'"(?:[^"\\]|\\.)*"'
LITERALS = rf"{LITERAL}(?:\s*{LITERAL})*"


def module_source():
    return "".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("nginx/*.c")))


def engine_source(name):
    return (ROOT / "src" / "engine" / name).read_text(encoding="utf-8")


def joined(literals):
    """Adjacent C string literals as one text."""
    text = "".join(literal[1:-1] for literal in re.findall(LITERAL, literals))
    return text.replace("\\\\", "\0").replace('\\"', '"').replace("\0", "\\")


def shortened(text):
    """A format with "…" for what differs."""
    return re.sub(r"%(?:uz|ui|uD|O|V|s|i|d)", "…", text)


def log_lines():
    """What the module logs. What it says of bad values is not here: see configure.md."""
    lines = set()
    for call in re.findall(r"ngx_(?:conf_)?log_error\((.*?)\);", module_source(), re.S):
        text = joined(re.search(LITERALS, call.replace("ngx_open_dir_n", '"…"'))[0])
        if not text.startswith(("invalid value", "duplicate")):
            lines.add(shortened(text))
    return sorted(lines)


def directives():
    """Name and context of each entry in a table of commands."""
    entry = re.compile(r'\{ ngx_string\("(idempotency\w*)"\),\s*(NGX_HTTP_\w+)')
    return {name: "http" if flags.startswith("NGX_HTTP_MAIN_CONF") else "http, server, location"
            for name, flags in entry.findall(module_source())}


def variables():
    return set(re.findall(r'\{ ngx_string\("(idempotency_\w+)"\), NULL,', module_source()))


def results():
    table = re.search(r"ngx_http_idempotency_results\[\] = {(.*?)};", module_source(), re.S)[1]
    return re.findall(r'"(\w+)"', table)


def merged_defaults():
    """What the module's merge says: field name -> default, for those that are plain."""
    return dict(re.findall(r"ngx_conf_merge_(?:\w+_)?value\(conf->(\w+), prev->\w+,\s*([^;]+)\);", module_source()))


def default_statuses(name):
    return re.search(rf"default_{name}\[\] = {{(.*?)}}", engine_source("outcome.c"))[1].replace(",", "")


def problems():
    """(status, code) of each answer of our own."""
    return re.findall(r'\{\s*(\d{3}), "([a-z-]+)",', engine_source("problem.c"))


def key_faults():
    """The sentence for each fault of a key, up to its first number."""
    found = re.findall(rf"snprintf\(buf, cap,\s*({LITERALS})", engine_source("key.c"))
    return [joined(literals).split("%")[0] for literals in found if "is valid" not in literals]
