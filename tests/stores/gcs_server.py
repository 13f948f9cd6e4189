"""A small Google Cloud Storage on loopback: the part of the XML API that object stores' clients use.

Objects are held in memory. It is strict: a query parameter, a header of the API's own, or a method that it does not
know is answered with 501, so that no request passes unread. A `Fault` changes what some requests are answered.
"""

import collections
import contextlib
import dataclasses
import datetime
import email.utils
import hashlib
import http.server
import itertools
import json
import re
import threading
import urllib.parse
import xml.etree.ElementTree
from xml.sax.saxutils import escape

from stores.bucket import BUCKET, Bucket, below, quoted

PAGE = 20  # objects of one page of a listing
PART_BYTES_MIN = 5 << 20  # of every part but the last
NAME_BYTES_MAX = 1_024
QUERIES = {
    "list-type", "prefix", "delimiter", "continuation-token", "start-after", "max-keys", "uploads", "uploadId",
    "partNumber", "generation",
}
HEADERS = {"x-goog-if-generation-match", "x-goog-copy-source"}

Stored = collections.namedtuple("Stored", "content tag generation modified")


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status, code):
        super().__init__(code)
        self.status, self.code = status, code


@dataclasses.dataclass
class Fault:
    """What happens to the requests that `concerns(request)` picks, `times` of them at most.

    With `carried_out` the request takes effect and its answer is lost with the connection; without, it is answered
    503 and has no effect.
    """

    concerns: object
    times: int
    carried_out: bool
    met: int = 0


@dataclasses.dataclass
class Request:
    method: str
    name: str  # of the object; empty for the bucket itself
    query: dict
    headers: dict
    body: bytes

    @property
    def kind(self):
        """The operation in a word."""
        if self.method == "PUT" and "x-goog-copy-source" in self.headers:
            return "copy"
        if self.method == "PUT" and "partNumber" in self.query:
            return "part"
        if self.method == "PUT":
            return "create" if "x-goog-if-generation-match" in self.headers else "put"
        if self.method == "POST":
            return "start" if "uploads" in self.query else "complete"
        if self.method == "DELETE":
            return "give up" if "uploadId" in self.query else "delete"
        return "list" if not self.name else self.method.lower()


class Store:
    """The objects of one bucket. Every request is carried out under one lock: each is atomic."""

    def __init__(self):
        self.objects, self.uploads = {}, {}
        self.generations = itertools.count(1_700_000_000_000_001)
        self.lock = threading.RLock()
        self.fault = None
        self.served = collections.Counter()  # (kind, status) of every answer

    def concerned(self, request):
        """The fault that this request meets, if any."""
        with self.lock:
            fault = self.fault
            if fault and fault.met < fault.times and fault.concerns(request):
                fault.met += 1
                return fault
        return None

    def answer(self, request):
        """(status, headers, body)."""
        unknown = set(request.query) - QUERIES
        unknown |= {name for name in request.headers if name.startswith("x-goog-")} - HEADERS
        with self.lock:
            try:
                if unknown:
                    raise Refused(501, f"NotImplemented {sorted(unknown)}")
                status, headers, body = getattr(self, request.kind.replace(" ", "_"))(request)
            except Refused as refused:
                status, headers = refused.status, {"Content-Type": "application/xml"}
                body = document("Error", f"<Code>{escape(refused.code)}</Code><Message>{refused.status}</Message>")
            self.served[request.kind, status] += 1
        return status, headers, body

    def found(self, name):
        if name not in self.objects:
            raise Refused(404, "NoSuchKey")
        return self.objects[name]

    def check_generation(self, request):
        wanted = request.headers.get("x-goog-if-generation-match")
        stored = self.objects.get(request.name)
        if wanted is not None and int(wanted) != (stored.generation if stored else 0):
            raise Refused(412, "PreconditionFailed")

    def set(self, request, content, tag=None):
        if len(request.name.encode()) > NAME_BYTES_MAX:
            raise Refused(400, "KeyTooLongError")
        self.check_generation(request)
        tag = tag or hashlib.md5(content).hexdigest()
        stored = Stored(content, f'"{tag}"', next(self.generations), datetime.datetime.now(datetime.timezone.utc))
        self.objects[request.name] = stored
        return stored

    def put(self, request):
        if "content-length" not in request.headers:
            raise Refused(411, "MissingContentLength")
        return 200, marks(self.set(request, request.body)), b""

    create = put

    def copy(self, request):
        bucket, _, name = urllib.parse.unquote(request.headers["x-goog-copy-source"]).lstrip("/").partition("/")
        if bucket != BUCKET:
            raise Refused(404, "NoSuchBucket")
        stored = self.set(request, self.found(name).content)
        inside = f"<ETag>{escape(stored.tag)}</ETag><LastModified>{moment(stored)}</LastModified>"
        return 200, marks(stored), document("CopyObjectResult", inside)

    def get(self, request):
        stored = self.found(request.name)
        if request.query.get("generation", str(stored.generation)) != str(stored.generation):
            raise Refused(404, "NoSuchKey")
        wanted = request.headers.get("if-match")
        if wanted and wanted.strip('"') != stored.tag.strip('"'):
            raise Refused(412, "PreconditionFailed")
        size, headers = len(stored.content), {**marks(stored), "Accept-Ranges": "bytes"}
        part = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if not part:
            return 200, headers, stored.content
        if part[1]:
            first, end = int(part[1]), min(int(part[2]) + 1, size) if part[2] else size
        else:
            first, end = max(0, size - int(part[2])), size
        if first >= end:
            raise Refused(416, "InvalidRange")
        return 206, {**headers, "Content-Range": f"bytes {first}-{end - 1}/{size}"}, stored.content[first:end]

    head = get

    def delete(self, request):
        self.found(request.name)
        del self.objects[request.name]
        return 204, {}, b""

    def list(self, request):
        query = request.query
        if query.get("list-type") != "2":
            raise Refused(501, "NotImplemented: the first version of listings")
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        after = query.get("continuation-token", query.get("start-after", "")).encode()
        limit = min(PAGE, int(query.get("max-keys", PAGE)))
        lines, last, more, groups = [], None, False, set()
        for name in sorted(self.objects, key=str.encode):
            if not name.startswith(prefix) or name.encode() <= after:
                continue
            rest, cut = name[len(prefix):], False
            group = None
            if delimiter and delimiter in rest:
                group = prefix + rest.partition(delimiter)[0] + delimiter
                cut = group in groups or after.startswith(group.encode())
            if cut:
                last = name
                continue
            if len(lines) == limit:
                more = True
                break
            last = name
            if group:
                groups.add(group)
                lines.append(f"<CommonPrefixes><Prefix>{escape(group)}</Prefix></CommonPrefixes>")
                continue
            stored = self.objects[name]
            lines.append(
                f"<Contents><Key>{escape(name)}</Key><Generation>{stored.generation}</Generation>"
                f"<LastModified>{moment(stored)}</LastModified><ETag>{escape(stored.tag)}</ETag>"
                f"<Size>{len(stored.content)}</Size></Contents>"
            )
        if more:
            lines.append(f"<NextContinuationToken>{escape(last)}</NextContinuationToken>")
        lines.append(f"<IsTruncated>{str(more).lower()}</IsTruncated><KeyCount>{len(lines)}</KeyCount>")
        return 200, {"Content-Type": "application/xml"}, document("ListBucketResult", "".join(lines))

    def start(self, request):
        name = f"upload-{next(self.generations)}"
        self.uploads[name] = request.name, {}
        inside = f"<Bucket>{BUCKET}</Bucket><Key>{escape(request.name)}</Key><UploadId>{name}</UploadId>"
        return 200, {"Content-Type": "application/xml"}, document("InitiateMultipartUploadResult", inside)

    def parts(self, request):
        name, parts = self.uploads.get(request.query.get("uploadId"), (None, None))
        if name != request.name:
            raise Refused(404, "NoSuchUpload")
        return parts

    def part(self, request):
        number, tag = int(request.query["partNumber"]), hashlib.md5(request.body).hexdigest()
        if not 1 <= number <= 10_000:
            raise Refused(400, "InvalidArgument")
        self.parts(request)[number] = f'"{tag}"', request.body
        return 200, {"ETag": f'"{tag}"'}, b""

    def complete(self, request):
        parts, contents = self.parts(request), []
        for part in xml.etree.ElementTree.fromstring(request.body).iter("Part"):
            tag, content = parts.get(int(part.findtext("PartNumber")), (None, None))
            if tag is None or tag.strip('"') != part.findtext("ETag").strip('"'):
                raise Refused(400, "InvalidPart")
            contents.append(content)
        if not contents:
            raise Refused(400, "MalformedXML")
        if any(len(content) < PART_BYTES_MIN for content in contents[:-1]):
            raise Refused(400, "EntityTooSmall")
        whole = b"".join(contents)
        # The tag of an object of parts is no MD5.
        stored = self.set(request, whole, f"{hashlib.md5(whole).hexdigest()}-{len(contents)}")
        del self.uploads[request.query["uploadId"]]
        inside = f"<Bucket>{BUCKET}</Bucket><Key>{escape(request.name)}</Key><ETag>{escape(stored.tag)}</ETag>"
        return 200, marks(stored), document("CompleteMultipartUploadResult", inside)

    def give_up(self, request):
        self.parts(request)
        del self.uploads[request.query["uploadId"]]
        return 204, {}, b""


def document(root, inside):
    return f"<?xml version='1.0' encoding='UTF-8'?><{root}>{inside}</{root}>".encode()


def moment(stored):
    return stored.modified.strftime("%Y-%m-%dT%H:%M:%S.") + f"{stored.modified.microsecond // 1_000:03d}Z"


def marks(stored):
    """The headers that tell of an object."""
    return {
        "ETag": stored.tag, "x-goog-generation": str(stored.generation),
        "Last-Modified": email.utils.format_datetime(stored.modified, usegmt=True),
    }


def handler(store):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 60

        def log_message(self, *_):
            pass

        def handle(self):
            # A client that was killed resets its connections.
            with contextlib.suppress(ConnectionError):
                super().handle()

        def serve(self):
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            target = urllib.parse.urlsplit(self.path)
            bucket, _, name = target.path.lstrip("/").partition("/")
            query = dict(urllib.parse.parse_qsl(target.query, keep_blank_values=True))
            request = Request(self.command, urllib.parse.unquote(name), query, headers, body)
            if urllib.parse.unquote(bucket) != BUCKET:
                return self.send(404, {}, document("Error", "<Code>NoSuchBucket</Code><Message>no bucket</Message>"))
            fault = store.concerned(request)
            if fault and not fault.carried_out:
                return self.send(503, {}, document("Error", "<Code>ServiceUnavailable</Code>"))
            answer = store.answer(request)
            if fault:
                self.close_connection = True
                return None
            return self.send(*answer)

        def send(self, status, headers, body):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

    return Handler


class GoogleBucket(Bucket):
    scheme = "gs"

    def __init__(self, port, store):
        super().__init__(port)
        self.store = store

    @property
    def environment(self):
        """What `baler` needs to reach the server."""
        account = {
            "gcs_base_url": f"http://127.0.0.1:{self.port}", "disable_oauth": True, "client_email": "",
            "private_key": "", "private_key_id": "",
        }
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}

    def put(self, name, content):
        status, _, said = self.request("PUT", f"/{BUCKET}/{quoted(name)}", body=content)
        assert status == 200, said

    def get(self, name):
        status, _, content = self.request("GET", f"/{BUCKET}/{quoted(name)}")
        assert status == 200, content
        return content

    def names(self, prefix):
        found, token = [], None
        while True:
            query = {"list-type": "2", "prefix": f"{prefix}/", **({"continuation-token": token} if token else {})}
            status, _, said = self.request("GET", f"/{BUCKET}?{urllib.parse.urlencode(query)}")
            assert status == 200, said
            page = xml.etree.ElementTree.fromstring(said)
            found += [name.text for name in page.findall("Contents/Key")]
            token = page.findtext("NextContinuationToken")
            if not token:
                return below(prefix, found)

    @contextlib.contextmanager
    def faulty(self, concerns, times, carried_out):
        """A fault for as long as the block lasts."""
        self.store.fault = Fault(concerns, times, carried_out)
        try:
            yield self.store.fault
        finally:
            self.store.fault = None


@contextlib.contextmanager
def running():
    store = Store()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(store))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield GoogleBucket(server.server_address[1], store)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
