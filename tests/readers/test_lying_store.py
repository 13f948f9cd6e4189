"""An S3 server that lies: it answers reads of the inputs short, long, from elsewhere, with another object's tag, with an
error page under status 200, or with other bytes; and its lists are stale.

A proxy on loopback passes everything on to the real server, but for the lie. Whatever the lie, a run ends right or with
an error that names the file, and nothing wrong is published.
"""

import http.client
import http.server
import threading
import urllib.parse

import pyarrow as pa
import pytest

from s3_server import BUCKET, KEY, SECRET, free_ports
from whole_tables import are_equal, ordered

VICTIM = "chunks-0001.parquet"


def short(status, headers, body):
    """The end is missing, and the length agrees with what came."""
    return status, headers, body[: len(body) // 2]


def cut(status, headers, body):
    """The connection ends in the middle of the promised length."""
    return status, {**headers, "Content-Length": str(len(body))}, body[: len(body) // 2]


def extra(status, headers, body):
    return status, headers, body + b"more bytes than were asked for"


def elsewhere(status, headers, body):
    """The bytes of another range under the asked one's name."""
    return status, headers, body[1:] + body[:1]


def page(status, headers, body):
    text = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>try later</Message></Error>"
    return 200, {**headers, "Content-Type": "application/xml"}, text


def tag(status, headers, body):
    return status, {**headers, "ETag": '"00000000000000000000000000000000"'}, body


def flipped(status, headers, body):
    """One bit in the middle of what came."""
    place = len(body) // 2
    return status, headers, body[:place] + bytes([body[place] ^ 4]) + body[place + 1:]


class Proxy:
    """Passes requests on to `upstream`. `lie` changes answers to reads of the victim, for `times` of them."""

    def __init__(self, upstream, lie=None, times=1_000_000, stale=None):
        self.lie, self.left, self.told, self.stale = lie, times, 0, stale
        self.lock = threading.Lock()
        host = urllib.parse.urlsplit(upstream).netloc
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def pass_on(self):
                length = int(self.headers.get("Content-Length") or 0)
                sent = self.rfile.read(length) if length else None
                upstream = http.client.HTTPConnection(host, timeout=30)
                # The signature covers the host that the client knows, so every header goes on as it came.
                upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    upstream.putheader(name, value)
                upstream.endheaders(sent)
                answer = upstream.getresponse()
                body, status, headers = answer.read(), answer.status, {}
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        headers[name] = value
                length = str(len(body)) if self.command != "HEAD" else answer.getheader("Content-Length", "0")
                upstream.close()
                status, headers, body = proxy.changed(self.command, self.path, status, headers, body)
                if "Content-Length" not in headers:
                    headers["Content-Length"] = str(len(body)) if self.command != "HEAD" else length
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)
                    if int(headers["Content-Length"]) != len(body):
                        self.close_connection = True

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on

        port = free_ports(1)[0]
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def changed(self, command, path, status, headers, body):
        plain = urllib.parse.unquote(path.partition("?")[0])
        with self.lock:
            if self.stale and command == "GET" and "list-type=2" in path:
                return status, headers, self.stale(body)
            if self.lie and command == "GET" and plain.endswith(VICTIM) and "/in/" in plain and status < 300 and self.left:
                self.left -= 1
                self.told += 1
                return self.lie(status, headers, body)
        return status, headers, body

    @property
    def environment(self):
        return {
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_ENDPOINT": self.endpoint, "AWS_ALLOW_HTTP": "true",
        }

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def laid_out(s3, source, request):
    """(prefix, source) of a table of two keys on the server; the lies are told of one of them."""
    prefix = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    for number, key in enumerate(("good", "lied")):
        for chunk in range(3):
            first = number * 10_000 + chunk * 3_000
            # Each name is used once, so that the victim is one file.
            name = f"chunks-{chunk:04d}.parquet" if key == "lied" else f"chunks-{chunk + 10:04d}.parquet"
            table = pa.table({"n": range(first, first + 3_000), "s": [f"{i:x}" * 3 for i in range(3_000)]})
            # Without checksums nobody can tell a value that was flipped on every read from one that was written so.
            source.put(f"t/{key}", name, table, write_page_checksum=True)
    s3.upload(source.root, f"{prefix}/in")
    return prefix, source


def compacted(baler, proxy, prefix, state):
    locations = (f"s3://{BUCKET}/{prefix}/in", "--out", f"s3://{BUCKET}/{prefix}/out")
    return baler("compact", *locations, "--state", state, env=proxy.environment, timeout=280)


def is_right(s3, prefix, source, folder, keys=("good", "lied")):
    s3.download(f"{prefix}/out", folder)
    for key in keys:
        are_equal(ordered(source.root / "t" / key), ordered(folder / "t" / key))


@pytest.mark.parametrize("lie", [short, cut, extra, elsewhere, page, tag, flipped])
@pytest.mark.parametrize("times", ["once", "always"])
def test_a_read_that_lies_changes_no_row(s3, laid_out, baler, tmp_path, lie, times):
    prefix, source = laid_out
    with Proxy(s3.endpoint, lie, times=1 if times == "once" else 1_000_000) as proxy:
        run = compacted(baler, proxy, prefix, tmp_path / "state")
        assert proxy.told > 0
    assert "panicked" not in run.said
    if run.code == 0:
        is_right(s3, prefix, source, tmp_path / "made")
        return
    run.ends(1).names(VICTIM)
    is_right(s3, prefix, source, tmp_path / "made", keys=("good",))
    assert not [name for name in s3.names(f"{prefix}/out/t/lied") if name.endswith(".parquet")], run.story()
    # The store is honest again.
    with Proxy(s3.endpoint) as proxy:
        compacted(baler, proxy, prefix, tmp_path / "state").ends(0)
    is_right(s3, prefix, source, tmp_path / "again")


def test_a_list_that_lags_behind_loses_nothing_that_it_named(s3, laid_out, baler, tmp_path):
    """A stale list leaves a file out: the run is right for what was listed, and the next one finds the rest."""
    prefix, source = laid_out

    def without_the_last(body):
        start = body.find(b"<Contents>")
        while start >= 0:
            end = body.index(b"</Contents>", start) + len(b"</Contents>")
            if b"/in/" in body[start:end] and b"chunks-0002.parquet" in body[start:end]:
                return body[:start] + body[end:]
            start = body.find(b"<Contents>", end)
        return body

    with Proxy(s3.endpoint, stale=without_the_last) as proxy:
        run = compacted(baler, proxy, prefix, tmp_path / "state").ends(0)
        assert "panicked" not in run.said
    s3.download(f"{prefix}/out", tmp_path / "made")
    are_equal(ordered(source.root / "t/lied")[:2], ordered(tmp_path / "made/t/lied"))
    with Proxy(s3.endpoint) as proxy:
        compacted(baler, proxy, prefix, tmp_path / "state").ends(0)
    is_right(s3, prefix, source, tmp_path / "again")
