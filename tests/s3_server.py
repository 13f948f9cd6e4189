"""A SeaweedFS S3 server on loopback, for as long as a test session needs it."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.fs

KEY, SECRET, BUCKET = "bench-key", "bench-secret", "tables"


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Server:
    def __init__(self, port):
        self.endpoint = f"http://127.0.0.1:{port}"
        self.files = pyarrow.fs.S3FileSystem(
            access_key=KEY, secret_key=SECRET, endpoint_override=f"127.0.0.1:{port}", scheme="http", region="us-east-1",
            allow_bucket_creation=True, connect_timeout=2, request_timeout=20,
        )

    @property
    def environment(self):
        """What `baler` needs to reach the server."""
        return {
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT": self.endpoint, "AWS_ALLOW_HTTP": "true",
        }

    def upload(self, folder, prefix):
        """Every file below a local folder, under the same relative names."""
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                with self.files.open_output_stream(f"{BUCKET}/{prefix}/{path.relative_to(folder).as_posix()}") as sink:
                    sink.write(path.read_bytes())

    def download(self, prefix, folder):
        """Every object below a prefix, into a local folder."""
        selector = pyarrow.fs.FileSelector(f"{BUCKET}/{prefix}", recursive=True, allow_not_found=True)
        for entry in self.files.get_file_info(selector):
            if entry.type == pyarrow.fs.FileType.File:
                path = Path(folder) / entry.path.removeprefix(f"{BUCKET}/{prefix}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                with self.files.open_input_stream(entry.path) as stream:
                    path.write_bytes(stream.read())

    def names(self, prefix):
        selector = pyarrow.fs.FileSelector(f"{BUCKET}/{prefix}", recursive=True, allow_not_found=True)
        return sorted(e.path.removeprefix(f"{BUCKET}/{prefix}/") for e in self.files.get_file_info(selector) if e.type == pyarrow.fs.FileType.File)


@contextlib.contextmanager
def running(folder):
    """Starts the server with its data in `folder`, makes the bucket, and ends it at the end."""
    folder = Path(folder)
    (folder / "data").mkdir()
    identities = {"identities": [{"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
    (folder / "identities.json").write_text(json.dumps(identities))
    # SeaweedFS takes port + 10000 for gRPC unless told otherwise.
    names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc", "s3.port.iceberg"]
    ports = dict(zip(names, free_ports(len(names))))
    arguments = [f"-{name}={port}" for name, port in ports.items()]
    weed = Path(sys.executable).parent / "weed"
    with open(folder / "weed.log", "wb") as log:
        process = subprocess.Popen(
            [weed, "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-volume.max=50",
             "-master.volumeSizeLimitMB=256", f"-s3.config={folder / 'identities.json'}", "-s3.port.lance=0", *arguments],
            stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder,
        )
    try:
        server, give_up = Server(ports["s3.port"]), time.monotonic() + 60
        while True:
            try:
                server.files.create_dir(BUCKET)
                with server.files.open_output_stream(f"{BUCKET}/ready") as sink:
                    sink.write(b"yes")
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < give_up, (folder / "weed.log").read_text()[-3000:]
                time.sleep(0.3)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
