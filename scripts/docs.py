#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The documentation site: README, docs/, examples' pages and the manual pages, as static pages with a search (mkdocs).

usage: docs.py OUT             builds the site into OUT
       docs.py OUT --check     and follows every link of it; with chromium also asks the search, as a browser does
"""
import contextlib
import functools
import html.parser
import http.server
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[([^\]\n]*)\]\(([^()\s]+)\)")
SOURCE = re.compile(r"(src|tests|bench|scripts|tools)/[a-z]|\./dev ")
NOTE = (ROOT / "cmake/source_note.md").read_text()
CODE = re.compile(r"(```.*?```|^(?: {4}|\t)[^\n]*$)", re.S | re.M)
SEARCHED = ("FI_DELIVERY_COMPLETE", "ibv_post_send", "WEFT_PCAP")

# Title, and the pages or folders in it.
NAVIGATION = (
    ("For users", ("docs/packages.md", "docs/libfabric.md", "docs/mpi.md", "docs/openshmem.md", "docs/verbs.md", "docs/rdmacm.md", "docs/shm.md", "docs/tcp.md", "docs/composite.md", "docs/networks.md", "docs/progress.md", "docs/performance.md", "docs/perf.md",
                   "docs/check.md", "docs/statistics.md", "docs/trace.md", "docs/nic.md", "docs/kofi.md", "docs/ci.md", "SECURITY.md", "CHANGELOG.md", "docs/roadmap.md")),
    ("Manual pages", ("man",)),
    ("For authors of providers", ("docs/provider-guide.md", "docs/verbs-provider.md", "docs/nic-guide.md", "docs/linking.md", "docs/compatibility.md")),
    ("How it works", ("ARCHITECTURE.md", "docs/engine.md", "docs/reliable.md", "docs/roce.md", "docs/packets.md", "docs/ethernet.md", "docs/devices.md", "docs/front-end.md", "docs/memory-order.md", "docs/walk", "docs/wire")),
    ("Decisions", ("docs/decisions",)),
    ("Changing it", ("CONTRIBUTING.md", "tests/README.md", "docs/reports.md", "docs/vm.md", "bench/README.md")),
)
STYLE = """.md-grid { max-width: 80rem; }
.md-typeset { font-size: .75rem; }
.md-typeset table:not([class]) code { word-break: normal; overflow-wrap: break-word; }
.md-typeset img { width: 100%; }
"""


def pages() -> "list[pathlib.Path]":
    found = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md", "bench/README.md")]
    return [page for page in found if page.exists()] + sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "examples").rglob("*.md"))


def title(text: str, otherwise: str) -> str:
    match = re.search(r"^# (.+)$", text, re.M)
    return match[1].replace("`", "") if match else otherwise


def text_for(page: pathlib.Path, shown: "set[pathlib.Path]") -> str:
    """Links to what the site does not have become plain words; a table or list needs an empty line before it."""
    def link(match: "re.Match[str]") -> str:
        words, target = match[1], match[2]
        file, _, part = target.partition("#")
        if re.match(r"[a-z]+:", target) or not file:
            return match[0]
        there = (page.parent / file).resolve()
        if there.is_dir():
            there = there / "README.md"
        if there == ROOT / "README.md":
            there = ROOT / "index.md"
        if target.endswith("/") and there.name == "README.md":
            return words  # a folder
        if there.suffix == ".svg" and there.is_relative_to(ROOT / "docs"):
            return match[0]  # a picture, which lies beside the page as in docs/
        if there not in shown and there != ROOT / "index.md":
            return f"`{words}`" if "`" not in words and not words.startswith("!") else words
        up = "../" * len(page.relative_to(ROOT).parts[:-1])
        return f"[{words}]({up}{there.relative_to(ROOT).as_posix()}{'#' + part if part else ''})"

    text = page.read_text()
    if SOURCE.search(text):
        text = re.sub(r"\A(# .*\n)", lambda match: f"{match[1]}\n{NOTE}", text)
    pieces = CODE.split(text)
    text = "".join(piece if i % 2 else LINK.sub(link, piece) for i, piece in enumerate(pieces))
    return re.sub(r"(^(?!\s*[-*|\d]|#|$).+\n)(?=(?:- |\* |\d+\. |\|))", r"\1\n", text, flags=re.M)


def manual(page: pathlib.Path) -> str:
    text = subprocess.run(["mandoc", "-T", "html", "-O", "fragment", page], capture_output=True, text=True, check=True).stdout
    text = re.sub(r'<table class="(head|foot)">.*?</table>', "", text, flags=re.S)
    text = re.sub(r"<(/?)h1\b", r"<\1h2", text)
    names = "|".join(other.stem.replace("-", "[-‐]") + rf"\({other.suffix[1:]}\)" for other in page.parent.glob("*.[17]"))
    text = re.sub(rf"(?<![\w-])(?:<b>)?({names})", lambda match: f'<a href="{match[1].replace("‐", "-")[:-3]}.{match[1][-2]}.html">{match[1]}</a>', text)
    return f"# {page.stem}({page.suffix[1:]})\n\n<div>\n{text}\n</div>\n"


def write_source(folder: pathlib.Path) -> "list[object]":
    shown = set(pages())
    titles = {}
    for page in sorted(shown):
        name = "index.md" if page == ROOT / "README.md" else page.relative_to(ROOT).as_posix()
        out = folder / name
        out.parent.mkdir(parents=True, exist_ok=True)
        text = text_for(page, shown | {ROOT / "index.md"})
        out.write_text(text)
        titles[name] = title(text, page.stem)
    for picture in (ROOT / "docs").rglob("*.svg"):
        shutil.copy(picture, folder / picture.relative_to(ROOT))
    (folder / "man").mkdir()
    for page in sorted((ROOT / "docs/man").glob("*.[17]")):
        (folder / "man" / f"{page.stem}.{page.suffix[1:]}.md").write_text(manual(page))
        titles[f"man/{page.stem}.{page.suffix[1:]}.md"] = f"{page.stem}({page.suffix[1:]})"
    (folder / "style.css").write_text(STYLE)
    navigation: "list[object]" = [{"Start": "index.md"}]
    named = {"index.md"}
    for words, entries in NAVIGATION:
        listed = []
        for entry in entries:
            inside = [name for name in titles if name == entry or name.startswith(entry + "/")]
            listed += [{titles[name]: name} for name in sorted(inside)]
            named.update(inside)
        if listed:
            navigation.append({words: listed})
    rest = [{titles[name]: name} for name in sorted(set(titles) - named)]
    if rest:
        navigation.append({"More": rest})
    return navigation


def build(out: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        source = pathlib.Path(work) / "source"
        source.mkdir()
        navigation = write_source(source)
        import json  # YAML reads JSON
        (pathlib.Path(work) / "mkdocs.yml").write_text(json.dumps({
            "site_name": "Weft", "docs_dir": str(source), "site_dir": str(out.resolve()), "theme": {"name": "material", "font": False, "features": ["navigation.sections", "navigation.top", "toc.follow", "search.share"]},
            "nav": navigation, "extra_css": ["style.css"], "plugins": [{"search": {"min_search_length": 2, "separator": r"[\s\-\(\)\.,;:`|/]+"}}],
            "markdown_extensions": ["tables", "fenced_code", "toc"], "use_directory_urls": False, "strict": True}))
        made = subprocess.run(["mkdocs", "build", "--clean", "-f", str(pathlib.Path(work) / "mkdocs.yml")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if made.returncode != 0:
            sys.exit("\n".join(line for line in made.stdout.splitlines() if not line.startswith("INFO")))


class Links(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: "list[str]" = []
        self.names: "set[str]" = set()

    def handle_starttag(self, tag: str, attributes: "list[tuple[str, str | None]]") -> None:
        for name, value in attributes:
            if name in ("href", "src") and value and tag in ("a", "img", "link", "script"):
                self.links.append(value)
            if name in ("id", "name") and value:
                self.names.add(value)


@functools.cache
def read(page: pathlib.Path) -> Links:
    parser = Links()
    parser.feed(page.read_text())
    return parser


def broken_links(site: pathlib.Path) -> "list[str]":
    bad, seen = [], 0
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":
            continue
        for link in read(page).links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("/"):
                continue
            seen += 1
            there = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
            if there.is_dir():
                there = there / "index.html"
            if not there.exists():
                bad.append(f"{page.relative_to(site)}: {link} leads nowhere")
            elif parts.fragment and there.suffix == ".html" and parts.fragment not in read(there).names:
                bad.append(f"{page.relative_to(site)}: {link}: no such part")
    print(f"docs: {seen} links, {len(bad)} broken")
    return bad


# Asks the page for its results until there are some, and tells the server. The search runs in a worker of its own, whose time the
# browser's virtual time does not cover, so real time is what counts.
PROBE = """<script>
const asked = setInterval(() => {
  const hits = document.querySelectorAll(".md-search-result__item").length;
  if (hits > 0) { clearInterval(asked); fetch("/found?word=" + new URLSearchParams(location.search).get("q") + "&hits=" + hits); }
}, 250);
</script></body>"""
SEARCH_LIMIT_S = 300
# Nothing but the site is asked for.
BROWSER = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync")


class Site(http.server.SimpleHTTPRequestHandler):
    """The site, its first page with the probe in it; `found` gets (word, hits)."""
    found: "queue.Queue[tuple[str, int]]" = queue.Queue()

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        values = urllib.parse.parse_qs(parts.query)
        if parts.path == "/found":
            self.answer(b"", "text/plain")
            self.found.put((values["word"][0], int(values["hits"][0])))
        elif parts.path == "/index.html" and "q" in values:
            text = (pathlib.Path(self.directory) / "index.html").read_text()
            self.answer(text.replace("</body>", PROBE).encode(), "text/html")
        else:
            super().do_GET()

    def answer(self, body: bytes, kind: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # a browser that is ended
            self.write(body, kind)

    def write(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def hits_of(browser: str, address: str, word: str) -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # With a port for debugging it stays until it is told to go.
        running = subprocess.Popen([browser, *BROWSER, "--remote-debugging-port=0", f"--user-data-dir={profile}",
                                    f"{address}/index.html?q={word}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            end = time.monotonic() + SEARCH_LIMIT_S
            while time.monotonic() < end and running.poll() is None:
                try:
                    told, hits = Site.found.get(timeout=1)
                except queue.Empty:
                    continue
                if told == word:
                    return hits
            return 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def unfound(site: pathlib.Path) -> "list[str]":
    browser = shutil.which("chromium")
    if browser is None:
        print("docs: no chromium here: the search was not asked")
        return []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Site, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    bad = []
    for word in SEARCHED:
        hits = hits_of(browser, f"http://127.0.0.1:{server.server_port}", word)
        print(f"docs: search for {word}: {hits} pages", flush=True)
        if hits == 0:
            bad.append(f"the search does not find {word}")
    server.shutdown()
    return bad


def main() -> int:
    site = pathlib.Path(sys.argv[1])
    build(site)
    if "--check" not in sys.argv:
        return 0
    bad = broken_links(site) + unfound(site)
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
