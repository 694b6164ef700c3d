"""A Hugging Face hub on loopback: one repository of files in a folder, as the library huggingface_hub asks for them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0" * 40


@contextmanager
def serve(repository: str, folder: Path, status: int = 200) -> Iterator[str]:
    """Yields the address for HF_ENDPOINT; `status` 403 is what a model under a licence answers without a token."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            name = path.removeprefix(f"/{repository}/resolve/main/").removeprefix(f"/{repository}/resolve/{COMMIT}/")
            if status != 200:
                self._answer(status, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
            elif path.startswith(f"/api/models/{repository}/tree/"):
                files = [{"type": "file", "path": file.name, "size": 1, "oid": "0"} for file in folder.iterdir()]
                self._answer(200, json.dumps(files).encode(), {"Content-Type": "application/json"})
            elif path.startswith(f"/api/models/{repository}"):
                siblings = [{"rfilename": file.name} for file in folder.iterdir()]
                body = json.dumps({"id": repository, "sha": COMMIT, "siblings": siblings}).encode()
                self._answer(200, body, {"Content-Type": "application/json"})
            elif (folder / name).is_file():
                self._answer(200, (folder / name).read_bytes(), {"X-Repo-Commit": COMMIT, "ETag": f'"{name}"'})
            else:
                self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})

        def _answer(self, code: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(code)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
