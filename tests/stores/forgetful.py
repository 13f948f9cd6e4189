"""A proxy on loopback that passes requests on and loses some of the answers: the store has done what it was asked, and
the connection ends without a word."""

import contextlib
import http.client
import http.server
import threading


class Forgetful:
    """`concerns(method, target, headers)` picks the requests whose answers are lost, `times` of them at most."""

    def __init__(self, port, concerns, times):
        self.upstream, self.concerns, self.times = port, concerns, times
        self.met, self.lock = 0, threading.Lock()

    def loses(self, *request):
        with self.lock:
            lost = self.met < self.times and self.concerns(*request)
            self.met += bool(lost)
        return lost


def handler(forgetful):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 60

        def log_message(self, *_):
            pass

        def handle(self):
            with contextlib.suppress(ConnectionError):
                super().handle()

        def serve(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            connection = http.client.HTTPConnection("127.0.0.1", forgetful.upstream, timeout=30)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body or None)
                answer = connection.getresponse()
                content = answer.read()
            finally:
                connection.close()
            headers = {name.lower(): value for name, value in self.headers.items()}
            if answer.status < 300 and forgetful.loses(self.command, self.path, headers):
                self.close_connection = True
                return
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "keep-alive", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

    return Handler


@contextlib.contextmanager
def before(port, concerns, times):
    """(the proxy's port, the proxy) in front of a server's port, for as long as the block lasts."""
    forgetful = Forgetful(port, concerns, times)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(forgetful))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], forgetful
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
