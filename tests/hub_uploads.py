"""The half of the tests' Hub that takes uploads: what `huggingface_hub` asks for when it pushes.

`UploadHub` is a `HubServer` whose repository may not exist yet. It makes repositories and branches,
says which files are LFS, takes LFS objects whole or in parts, and commits. As on the real Hub, an
object is stored once its bytes have the hash that they were announced with, also if no commit ever
names it: whoever comes again need not send it again. Xet is not offered.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qs, unquote

import yaml

from hub_server import (
    COMMIT,
    PLAIN_SUFFIXES,
    TOKEN,
    HubFile,
    HubServer,
    Request,
    Response,
    _error,
    _Handler,
    _json,
)

READER_TOKEN = "hf_may_only_read"
MAX_PLAIN_BYTES = 10_000_000
CHUNK_BYTES = 1 << 10  # what tests send is small
OWNERS = ("me", "our-lab", "my-name", "my-lab")
SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M")  # of those that a test may have


class UploadHub(HubServer):
    """`part_bytes`: larger objects are sent in parts of that size. `bytes_per_second`: how fast it
    takes an object; may be changed while it runs."""

    def __init__(
        self,
        files: Mapping[str, bytes] | None = None,
        repo: str = "me/mine",
        part_bytes: int = 1 << 30,
        bytes_per_second: float | None = None,
    ) -> None:
        super().__init__(files or {}, repo, COMMIT)
        self.bytes_per_second = bytes_per_second
        self.exists = files is not None
        self.part_bytes = part_bytes
        self.num_bytes_received = 0  # of objects
        self.objects: dict[str, bytes] = {}
        self.parts: dict[tuple[str, int], bytes] = {}
        self.branches: dict[str, str] = {}  # beside the main one
        for listener in self._listeners.values():
            listener.RequestHandlerClass = _UploadHandler

    def files_at(self, branch: str = "main") -> dict[str, bytes]:
        commit = self.branches.get(branch) or self.commit
        return {path: bytes(file.content) for path, file in self._commits[commit].items()}

    def _commit_and_path(self, rest: str) -> tuple[str | None, str]:
        for name, commit in self.branches.items():
            if unquote(rest) == name or rest.startswith(f"{name}/"):
                return commit, rest[len(name) + 1 :]
        return super()._commit_and_path(rest)

    def _info(self, commit: str) -> Response:
        info = json.loads(bytes(super()._info(commit).body))
        return _json({**info, "private": self.is_private})

    def _right_response(self, request: Request, form: Mapping[str, list[str]]) -> Response:
        body = form.get("body", b"")
        assert isinstance(body, bytes)
        for pattern, answer in _ROUTES.items():
            if asked := re.fullmatch(pattern, f"{request.method} {request.path}"):
                return self._allowed(request) or answer(self, *asked.groups(), body)
        if not self.exists and request.path.startswith(("/api/datasets/", "/datasets/")):
            return _error(404, "RepoNotFound", "Repository not found")
        return super()._right_response(request, parse_qs(body.decode()))

    def _allowed(self, request: Request) -> Response | None:
        if request.origin == "cdn":  # by its address
            return None
        if request.authorization is None:
            return _error(401, "", "Invalid username or password.")
        if request.authorization == f"Bearer {TOKEN}":
            return None
        if request.authorization != f"Bearer {READER_TOKEN}":
            return _error(401, "", "Invalid credentials in Authorization header")
        return _error(403, "", "You don't have the rights to write to this repo")

    def _create(self, body: bytes) -> Response:
        asked = json.loads(body)
        repo = f"{asked['organization']}/{asked['name']}"
        url = f"{self.url}/datasets/{repo}"
        if asked["organization"] not in OWNERS:
            return _error(403, "", f"You don't have the rights under {asked['organization']}")
        if self.exists:
            said = {"error": "You already created this dataset repo", "url": url}
            return replace(_json(said), status=409)
        assert repo == self.repo and asked["type"] == "dataset", asked
        self.exists, self.is_private = True, asked.get("visibility") == "private"
        return _json({"url": url, "id": repo})

    def _branch(self, name: str, body: bytes) -> Response:
        if name in self.branches:
            return _error(409, "", "Reference already exists")
        self.branches[name] = self.commit
        return _json({})

    def _validate(self, body: bytes) -> Response:
        text = json.loads(body)["content"]
        header = yaml.safe_load(text.split("---")[1]) if text.startswith("---\n") else {}
        errors = [{"message": f"size {s}"} for s in header["size_categories"] if s not in SIZES]
        return _json({"errors": errors, "warnings": []})

    def _preupload(self, revision: str, body: bytes) -> Response:
        here = self._commits[self._commit_and_path(unquote(revision))[0] or ""]
        answers = []
        for file in json.loads(body)["files"]:
            is_plain = file["path"].endswith(PLAIN_SUFFIXES) and file["size"] <= MAX_PLAIN_BYTES
            answer = {"path": file["path"], "uploadMode": "regular" if is_plain else "lfs"}
            if old := here.get(file["path"]):
                answer["oid"] = old.sha256 if old.is_lfs else old.git_oid
            answers.append({**answer, "shouldIgnore": False})
        return _json({"files": answers})

    def _batch(self, body: bytes) -> Response:
        objects = []
        for asked in json.loads(body)["objects"]:
            oid, size = asked["oid"], asked["size"]
            if oid not in self.objects:
                asked["actions"] = {
                    "upload": self._upload_of(oid, size),
                    "verify": {"href": f"{self.url}/verify/{oid}"},
                }
            objects.append(asked)
        return _json({"transfer": "basic", "objects": objects})

    def _upload_of(self, oid: str, size: int) -> dict[str, object]:
        if size <= self.part_bytes:
            return {"href": f"{self.cdn_url}/upload/{oid}"}
        starts = range(0, size, self.part_bytes)
        urls = {str(n): f"{self.cdn_url}/upload/{oid}/{n}" for n in range(1, len(starts) + 1)}
        return {
            "href": f"{self.cdn_url}/complete/{oid}",
            "header": {"chunk_size": str(self.part_bytes), **urls},
        }

    def _put(self, oid: str, part: str | None, body: bytes) -> Response:
        if part is not None:
            self.parts[oid, int(part)] = body
        elif hashlib.sha256(body).hexdigest() != oid:
            return _error(400, "", "the bytes are not what was announced")
        else:
            self.objects[oid] = body
        return Response(200, {"ETag": f'"{hashlib.md5(body).hexdigest()}"'})

    def _complete(self, oid: str, body: bytes) -> Response:
        numbers = [part["partNumber"] for part in json.loads(body)["parts"]]
        return self._put(oid, None, b"".join(self.parts[oid, n] for n in numbers))

    def _verify(self, oid: str, body: bytes) -> Response:
        return _json({}) if oid in self.objects else _error(404, "", "no such object")

    def _commit(self, revision: str, body: bytes) -> Response:
        branch = unquote(revision)
        files = self.files_at(branch)
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                head = self.branches.get(branch) or self.commit
                if value.get("parentCommit", head) != head:
                    return _error(412, "", "A commit has happened since. Please refresh.")
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.objects:
                    return _error(400, "", f"{value['path']} was never uploaded")
                files[value["path"]] = self.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        commit = hashlib.sha1(f"{len(self._commits)}".encode()).hexdigest()
        main = self.commit
        self.push(files, commit)
        if branch in self.branches:
            self.branches[branch], self.commit = commit, main
        url = f"{self.url}/datasets/{self.repo}/commit/{commit}"
        return _json({"success": True, "commitOid": commit, "commitUrl": url})

    def damage(self, path: str) -> None:
        """What is stored is not what was sent."""
        content = bytes(self._commits[self.commit][path].content)
        self._commits[self.commit][path] = HubFile.of(path, content[::-1])


_REPO = r"[\w.-]+/[\w.-]+"
_ROUTES = {
    r"POST /api/repos/create": UploadHub._create,
    r"POST /api/validate-yaml": UploadHub._validate,
    rf"POST /api/datasets/{_REPO}/branch/(.+)": UploadHub._branch,
    rf"POST /api/datasets/{_REPO}/preupload/(.+)": UploadHub._preupload,
    rf"POST /api/datasets/{_REPO}/commit/(.+)": UploadHub._commit,
    rf"POST /datasets/{_REPO}\.git/info/lfs/objects/batch": UploadHub._batch,
    r"PUT /upload/(\w+)(?:/(\d+))?": UploadHub._put,
    r"POST /complete/(\w+)": UploadHub._complete,
    r"POST /verify/(\w+)": UploadHub._verify,
}


class _UploadHandler(_Handler):
    def _answer(self) -> None:
        body = self._body()
        self._send(self.server.hub.respond(self._request(), {"body": body}))

    do_GET = do_HEAD = do_POST = do_PUT = _answer  # noqa: N815

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self._read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self._read(int(self.headers.get("Content-Length", 0)))

    def _read(self, num_bytes: int) -> bytes:
        hub, data = self.server.hub, b""
        is_object = self.command == "PUT"
        while len(data) < num_bytes:
            piece = self.rfile.read(min(CHUNK_BYTES, num_bytes - len(data)))
            if not piece:
                raise ConnectionError("the client went away")
            data += piece
            if is_object:
                hub.num_bytes_received += len(piece)
                hub.closing.wait(len(piece) / (hub.bytes_per_second or float("inf")))
        return data
