"""A scripted model provider on 127.0.0.1, for tests of real harnesses.

It speaks what `tests.provider.wire` has, plays the steps that a test gives
it, and records exactly what it has billed::

    with Provider() as provider:
        run = provider.play("hello", [say("Hello.", Usage(fresh=10, output=2))])
        ...  # a harness with the base URL run.address
        assert run.bill.usage == Usage(fresh=10, output=2)

One server serves every test at once: scenario and run are in the path,
``http://127.0.0.1:PORT/s/SCENARIO/NUMBER``.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.provider.script import Charge, Run, Step, Tool
from tests.provider.wire import WIRES, Wire


class Provider:
    """The server; a context manager. It listens from the first on."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._numbers = itertools.count(1)
        self._answers = itertools.count(1)
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Provider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def play(
        self, scenario: str, steps: Sequence[Step], sides: Mapping[str, Sequence[Step]] | None = None
    ) -> Run:
        """A run of this script: `steps` of the main conversation, `sides` by the marker that opens them."""
        path = f"/s/{scenario}/{next(self._numbers)}"
        host, port = self._server.server_address[:2]
        run = self._runs[path] = Run(scenario, f"http://{host}:{port}{path}", steps, sides or {})
        return run

    def find(self, path: str) -> tuple[Run | None, str]:
        """The run that is asked at a path, and what is left of the path."""
        parts = path.partition("?")[0].split("/", 4)
        return self._runs.get("/".join(parts[:4])), "/" + "/".join(parts[4:])

    def name(self, run: Run) -> str:
        """A name for one more answer; no two are alike."""
        return f"{run.name.replace('-', '')}{next(self._answers):04d}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    provider: Provider

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A harness that was ended leaves its connection: nothing to tell."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are quiet."""

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def do_GET(self) -> None:
        self._json(404, {"error": {"message": "there is nothing to get here"}})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        run, rest = self.server.provider.find(self.path)
        wire = WIRES.get(rest)
        if run is None or wire is None:
            if run is not None:
                run.surprise(f"POST {rest}")
            self._json(404, {"error": {"message": f"nothing is played at {self.path}"}})
            return
        body = json.loads(data)
        lane, _, step = run.next(wire.opening(body), body)
        if step is None:
            self._json(400, wire.error(400, "the script is over"))
        elif step.status != 200:
            run.refused()
            extra = {} if step.retry_after is None else {"Retry-After": str(step.retry_after)}
            self._json(step.status, wire.error(step.status, f"scripted error {step.status}"), extra)
        else:
            self._answer(run, wire, lane, body, step)

    def _answer(self, run: Run, wire: Wire, lane: str, body: dict[str, Any], step: Step) -> None:
        name = self.server.provider.name(run)
        tools = sum(isinstance(block, Tool) for block in step.blocks)
        model = str(body.get("model"))
        # Billed before it is sent: who has read the last byte may look at the bill at once.
        if step.cut:
            run.charge(Charge(model, lane, wire.begun(step.usage), 0, cut=True))
        else:
            run.charge(Charge(model, lane, step.usage, tools))
        request = {"request-id": f"req_{name}", "x-request-id": f"req_{name}"}
        if step.cut and not body.get("stream"):
            self.close_connection = True
        elif not body.get("stream"):
            self._json(200, wire.whole(body, step, name), request)
        else:
            self._head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **request})
            for number, (event, value) in enumerate(wire.stream(body, step, name)):
                if step.cut and number == 3:
                    self.close_connection = True
                    return
                text = value if isinstance(value, str) else json.dumps(value)
                self._chunk(f"event: {event}\ndata: {text}\n\n" if event else f"data: {text}\n\n")
            self._chunk("")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _json(self, status: int, value: Any, extra: Mapping[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(extra or {})})

    def _send(self, status: int, data: bytes, extra: Mapping[str, str] | None = None) -> None:
        self._head(status, {"Content-Length": str(len(data)), **(extra or {})})
        if self.command != "HEAD":
            self.wfile.write(data)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
