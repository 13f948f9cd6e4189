"""What the stores of these tests have in common: a bucket reached over HTTP, without `baler`'s own client."""

import http.client
import os
import pathlib
import urllib.parse

BUCKET = "tables"


class Bucket:
    """One bucket, or container, of a server on loopback. A kind of store says how its requests look."""

    scheme = None

    def __init__(self, port):
        self.port = port

    # Of each kind: `environment`, `put(name, content)`, `get(name)`, `names(prefix)`.

    def location(self, prefix):
        return f"{self.scheme}://{BUCKET}/{prefix}"

    def request(self, method, target, headers=None, body=b""):
        """(status, headers, body) of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, target, body or None, {"Content-Length": str(len(body)), **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def upload(self, folder, prefix):
        """Every file below a local folder, under the same relative names."""
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def contents(self, prefix):
        """{name below the prefix: content} of every object below it."""
        return {name: self.get(f"{prefix}/{name}") for name in self.names(prefix)}

    def download(self, prefix, folder):
        """Every object below a prefix, into a local folder."""
        for name, content in self.contents(prefix).items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return pathlib.Path(folder)


def below(prefix, names):
    return sorted(name.removeprefix(f"{prefix}/") for name in names if name.startswith(f"{prefix}/"))


def quoted(name):
    return urllib.parse.quote(name, safe="/")


def is_continuous_integration():
    """Where a missing service is an error instead of a reason to skip."""
    return os.environ.get("CI") == "true"
