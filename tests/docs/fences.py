"""Reads Markdown: its fenced examples, headings and links.

The words after a fence say what an example is, and so how it is tested:

    nginx main|http|server|location       goes into a frame, and nginx -t takes it without a warning
    nginx ... gateway                     and the console examples of the page talk to it
    nginx ... refused                     each line is refused with the text in its comment
    nginx ... warned                      each line is taken, with a warning that has the text in its comment
    console                               "$ " commands are run; what they print is compared, "…" is anything
    c program NAME                        a whole program: compiled with warnings as errors
    sh by-hand                            not run, because it changes the machine; its syntax is checked
    log                                   a line that the sources can write
    text                                  no example: a formula, a drawing, a syntax
"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = re.compile(
    r"nginx (main|http|server|location)( gateway| refused| warned)?|console|c program \S+\.c|sh by-hand|log|text")


class Fence:
    def __init__(self, page, line, info, text):
        self.page = page
        self.line = line
        self.info = info
        self.words = info.split()
        self.text = text

    def __str__(self):
        return f"{self.page}:{self.line}"


def pages():
    """Every page, relative to the root."""
    found = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md"))
    return [str(page.relative_to(ROOT)) for page in found]


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def fences(page):
    """The fenced blocks of a page, in order."""
    found = []
    opened = None
    for number, line in enumerate(read(page).splitlines(), 1):
        if line.startswith("```") and opened is None:
            opened = Fence(page, number, line[3:].strip(), "")
        elif line.startswith("```"):
            found.append(opened)
            opened = None
        elif opened is not None:
            opened.text += line + "\n"
    assert opened is None, f"{opened} is never closed"
    return found


def all_fences(kind):
    """The examples of a kind, of all pages."""
    return [fence for page in pages() for fence in fences(page) if (fence.info + " ").startswith(kind + " ")]


def prose(page):
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", read(page), flags=re.M | re.S)


def anchors(page):
    """What can stand behind # in a link to the page, as GitHub makes it of headings."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.M):
        plain = re.sub(r"[`*]", "", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def links(page):
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))
