"""Azurite, the emulator of Azure Blob Storage, on loopback: its installation, its life, and a small signed client."""

import base64
import contextlib
import email.utils
import fcntl
import hashlib
import hmac
import os
import pathlib
import shutil
import subprocess
import time
import urllib.parse
import xml.etree.ElementTree

import pytest

from s3_server import free_ports
from stores.bucket import BUCKET, Bucket, below, is_continuous_integration, quoted

# The emulator's account and key are fixed and public.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-08-06"

TESTS = pathlib.Path(__file__).parent.parent
FOLDER = TESTS.parent / "target/azurite"
PROGRAM = FOLDER / "node_modules/azurite/dist/src/blob/main.js"
SIGNED_HEADERS = (
    "Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date",
    "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range",
)


def run(*command, timeout=240, **more):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=timeout, **more
    )
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, f"{' '.join(map(str, command))} -> {done.returncode}\n{said[-3000:]}"


def need_npm():
    """Makes sure that `node` and `npm` are there: CI installs them, elsewhere the tests are skipped without them."""
    if shutil.which("node") and shutil.which("npm"):
        return
    if not is_continuous_integration():
        pytest.skip("the Azure tests need node and npm (Debian: apt-get install nodejs npm)")
    can_install = os.geteuid() == 0 and shutil.which("apt-get")
    assert can_install, "the Azure tests need node and npm, and here they cannot be installed"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "-qq", env=environment)
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "nodejs", "npm", env=environment)


def install():
    """Installs Azurite into target/azurite, once; another process that does the same is waited for."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = (TESTS / "services/azurite/package.json").read_text()
    installed = FOLDER / "installed.json"
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        need_npm()
        if PROGRAM.is_file() and installed.is_file() and installed.read_text() == wanted:
            return
        (FOLDER / "package.json").write_text(wanted)
        run("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", cwd=FOLDER)
        assert PROGRAM.is_file(), f"npm installed no {PROGRAM}"
        installed.write_text(wanted)


class Container(Bucket):
    scheme = "az"

    @property
    def environment(self):
        """What `baler` needs to reach the server."""
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{self.port}",
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        }

    def signed(self, method, path, query=None, headers=None, body=b""):
        """A request with a shared key's signature."""
        query = query or {}
        headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": VERSION, **(headers or {})}
        plain = {**headers, "Content-Length": str(len(body)) if body else ""}
        lines = [method, *(plain.get(name, "") for name in SIGNED_HEADERS)]
        lines += [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-")]
        path = f"/{ACCOUNT}/{quoted(path)}"
        lines += [f"/{ACCOUNT}{path}", *(f"{name}:{query[name]}" for name in sorted(query))]
        digest = hmac.new(base64.b64decode(KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        target = path + ("?" + urllib.parse.urlencode(query) if query else "")
        return self.request(method, target, headers, body)

    def create(self):
        status, _, said = self.signed("PUT", BUCKET, {"restype": "container"})
        assert status == 201, said

    def put(self, name, content):
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}
        status, _, said = self.signed("PUT", f"{BUCKET}/{name}", headers=headers, body=content)
        assert status == 201, said

    def get(self, name):
        status, _, content = self.signed("GET", f"{BUCKET}/{name}")
        assert status == 200, content
        return content

    def names(self, prefix):
        found, marker = [], ""
        while True:
            query = {"restype": "container", "comp": "list", "prefix": f"{prefix}/", "maxresults": "50"}
            status, _, said = self.signed("GET", BUCKET, {**query, **({"marker": marker} if marker else {})})
            assert status == 200, said
            page = xml.etree.ElementTree.fromstring(said.decode("utf-8-sig"))
            found += [name.text for name in page.findall("Blobs/Blob/Name")]
            marker = page.findtext("NextMarker")
            if not marker:
                return below(prefix, found)


@contextlib.contextmanager
def running(folder):
    """Starts the emulator, makes the container, and ends it at the end."""
    install()
    port = free_ports(1)[0]
    arguments = ["--skipApiVersionCheck", "--inMemoryPersistence", "--disableTelemetry", "--silent"]
    log = pathlib.Path(folder) / "azurite.log"
    with open(log, "wb") as sink:
        process = subprocess.Popen(
            ["node", PROGRAM, *arguments, "--blobHost", "127.0.0.1", "--blobPort", str(port)],
            stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder,
        )
    try:
        container, give_up = Container(port), time.monotonic() + 60
        while True:
            try:
                container.create()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < give_up, log.read_text(errors="replace")[-3000:]
                time.sleep(0.2)
        yield container
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
