"""A server that plays the Hugging Face Hub for tests: python3 hub_server.py FOLDER [--token T] [--elsewhere URL]

FOLDER holds repositories as FOLDER/{models|datasets}/OWNER/NAME/REVISION/…files. It prints "port N" when it listens on
127.0.0.1, and writes one JSON line per request to FOLDER/requests.log: method, path, headers that matter, status.

FOLDER/faults.json, read at every request, is a list of faults: {"path": part of the request's path, "times": N,
"do": …}. Each is used N times (a count is kept in memory), in order:
  "status"    answers "status" (and header "code" as X-Error-Code, "headers")
  "cut"       sends "bytes" bytes of the file and closes the connection
  "stall"     sends "bytes" bytes and then nothing, until the client gives up
  "no_range"  ignores a Range header
  "damage"    changes the first byte of the file
  "redirect"  answers 302 to "to"
  "tree"      answers "json" instead of a list of files
Files whose names end in .safetensors, .bin or .gz, or larger than 64 KiB, are LFS files: resolve answers 302 to
/cdn/… on the same server, or below --elsewhere, where no token is expected.
"""
import argparse
import base64
import hashlib
import json
import os
import re
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

lock = threading.Lock()
used = {}       # uses of each fault
objects = {}    # uploaded LFS objects by sha256
commits = {}    # "models/owner/name/main" -> number of commits made through the API


def is_large(path, size):
    return size > 0 and (path.endswith((".safetensors", ".bin", ".gz")) or size > 65536)


def git_name(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    options = None

    def log_message(self, *words):
        pass

    # ---------------------------------------------------------------- answers

    def record(self, status):
        entry = {"method": self.command, "path": self.path, "status": status,
                 "authorization": self.headers.get("Authorization"), "range": self.headers.get("Range")}
        with lock, open(os.path.join(self.options.folder, "requests.log"), "a") as log:
            log.write(json.dumps(entry) + "\n")

    def answer(self, status, body=b"", headers=()):
        self.record(status)
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        if "Content-Length" not in dict(headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_json(self, value, status=200, headers=()):
        self.answer(status, json.dumps(value).encode(), {"Content-Type": "application/json", **dict(headers)})

    def refuse(self, status, code, message=""):
        self.answer_json({"error": message or code}, status, {"X-Error-Code": code, "X-Error-Message": message or code})

    def fault(self):
        try:
            with open(os.path.join(self.options.folder, "faults.json")) as file:
                faults = json.load(file)
        except FileNotFoundError:
            return {}
        for index, fault in enumerate(faults):
            if fault["path"] not in self.path or fault.get("method", self.command) != self.command:
                continue
            with lock:
                key = json.dumps([index, fault])
                if used.get(key, 0) >= fault.get("times", 1):
                    continue
                used[key] = used.get(key, 0) + 1
            return fault
        return {}

    # ---------------------------------------------------------------- repositories

    def repository(self, kind, name):
        """The folder; answers the error and returns None when there is none or it may not be seen."""
        aliases = {"datasets/wikitext": "datasets/Salesforce/wikitext"}
        if f"{kind}/{name}" in aliases:
            self.answer(307, headers={"Location": self.path.replace(f"{kind}/{name}", aliases[f"{kind}/{name}"])})
            return None
        folder = os.path.join(self.options.folder, kind, *name.split("/"))
        authorized = self.headers.get("Authorization") == f"Bearer {self.options.token}"
        if self.headers.get("Authorization") and not authorized:
            self.answer_json({"error": "Invalid credentials in Authorization header"}, 401,
                             {"X-Error-Message": "Invalid credentials in Authorization header"})
            return None
        if not os.path.isdir(folder) or ("private" in name and not authorized):
            self.refuse(404 if authorized else 401, "RepoNotFound", "Repository not found")
            return None
        if "gated" in name and not authorized:
            self.refuse(401, "GatedRepo", "Access to this repository is restricted")
            return None
        if "closed" in name:
            self.refuse(403, "GatedRepo", "Access to this repository is restricted")
            return None
        return folder

    def commit_of(self, folder, revision):
        """(commit, folder of files) of a revision; answers the error and returns None when there is none."""
        for name in sorted(os.listdir(folder)):
            commit = hashlib.sha1(f"{folder}/{name}/{commits.get(folder + '/' + name, 0)}".encode()).hexdigest()
            if revision in (name, commit):
                return commit, os.path.join(folder, name)
        self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return None

    def files_of(self, folder):
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                with open(path, "rb") as file:
                    yield os.path.relpath(path, folder).replace(os.sep, "/"), file.read()

    def tree(self, folder, query):
        fault = self.fault()
        if fault.get("do") == "tree":
            return self.answer_json(fault["json"], headers=fault.get("headers", {}))
        if fault:
            return self.play(fault, b"")
        entries = []
        for path, data in sorted(self.files_of(folder)):
            entry = {"type": "file", "path": path, "size": len(data), "oid": git_name(data)}
            if is_large(path, len(data)):
                entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            entries.append(entry)
            if "/" in path:
                entries.append({"type": "directory", "path": os.path.dirname(path), "size": 0, "oid": "0" * 40})
        page, start = 5, int(query.get("cursor", ["0"])[0])
        headers = {}
        if start + page < len(entries):
            address = f"http://{self.headers['Host']}{self.path.split('?')[0]}?recursive=true&cursor={start + page}"
            headers["Link"] = f'<{address}>; rel="next"'
        return self.answer_json(entries[start:start + page], headers=headers)

    # ---------------------------------------------------------------- files

    def play(self, fault, data, headers=()):
        kind = fault["do"]
        if kind == "status":
            extra = dict(fault.get("headers", {}))
            if "code" in fault:
                extra["X-Error-Code"] = fault["code"]
            return self.answer(fault["status"], b"{}", extra)
        if kind == "redirect":
            return self.answer(302, headers={"Location": fault["to"]})
        if kind in ("cut", "stall"):
            self.send_file(data, headers, stop=fault.get("bytes", 0))
            if kind == "stall":
                # Until the client closes the connection.
                self.connection.settimeout(60)
                try:
                    self.connection.recv(1)
                except OSError:
                    pass
            self.close_connection = True
            return None
        raise ValueError(kind)

    def send_file(self, data, headers, stop=None, ranges=True):
        start, status = 0, 200
        headers = {**dict(headers), "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted and ranges:
            start = int(wanted[1])
            if start >= len(data):
                return self.answer(416, headers={"Content-Range": f"bytes */{len(data)}"})
            status = 206
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        part = data[start:]
        if stop is None:
            return self.answer(status, part, headers)
        self.record(status)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(part))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(part[:stop])
        self.wfile.flush()
        return None

    def give(self, data, headers):
        fault = self.fault()
        if fault.get("do") == "damage":
            data = bytes([data[0] ^ 1]) + data[1:]
        elif fault.get("do") == "no_range":
            return self.send_file(data, headers, ranges=False)
        elif fault:
            return self.play(fault, data, headers)
        return self.send_file(data, headers)

    def resolve(self, kind, name, revision, path):
        folder = self.repository(kind, name)
        found = folder and self.commit_of(folder, revision)
        if not found:
            return None
        commit, folder = found
        headers = {"X-Repo-Commit": commit}
        try:
            with open(os.path.join(folder, path), "rb") as file:
                data = file.read()
        except OSError:
            return self.answer_json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound", **headers})
        if not is_large(path, len(data)):
            headers["ETag"] = f'"{git_name(data)}"'
            return self.give(data, headers)
        name = hashlib.sha256(data).hexdigest()
        headers.update({"X-Linked-Etag": f'"{name}"', "X-Linked-Size": str(len(data)), "ETag": '"other"'})
        base = self.options.elsewhere or f"http://{self.headers['Host']}"
        location = f"{base}/cdn/{kind}/{urllib.parse.quote(os.path.relpath(folder, os.path.join(self.options.folder, kind)))}/{urllib.parse.quote(path)}"
        return self.answer(302, headers={**headers, "Location": location})

    # ---------------------------------------------------------------- requests

    def do_GET(self):
        address = urllib.parse.urlsplit(self.path)
        path, query = urllib.parse.unquote(address.path), urllib.parse.parse_qs(address.query)
        if path == "/api/whoami-v2":
            if self.headers.get("Authorization") != f"Bearer {self.options.token}":
                return self.refuse(401, "", "Invalid credentials in Authorization header")
            return self.answer_json({"name": "tester", "type": "user"})
        if path.startswith("/cdn/") or path.startswith("/web/"):
            try:
                with open(os.path.join(self.options.folder, path.split("/", 2)[2]), "rb") as file:
                    data = file.read()
            except OSError:
                return self.answer(404)
            return self.give(data, {"ETag": '"cdn"'})
        match = re.fullmatch(r"/api/(models|datasets)/(.+?)(?:/(revision|tree)/([^/]+))?/?", path)
        if match:
            kind, name, what, revision = match.groups()
            if what != "tree" and (fault := self.fault()):
                return self.play(fault, b"")
            folder = self.repository(kind, name)
            found = folder and self.commit_of(folder, revision or "main")
            if not found:
                return None
            if what == "tree":
                return self.tree(found[1], query)
            siblings = [{"rfilename": path} for path, _ in sorted(self.files_of(found[1]))]
            return self.answer_json({"id": name, "_id": "1", "sha": found[0], "private": False, "siblings": siblings,
                                     "tags": [], "gated": False, "downloads": 0, "likes": 0,
                                     "lastModified": "2024-01-01T00:00:00.000Z",
                                     "createdAt": "2024-01-01T00:00:00.000Z"})
        match = re.fullmatch(r"/(datasets/)?(.+?)/resolve/([^/]+)/(.+)", path)
        if match:
            return self.resolve("datasets" if match[1] else "models", match[2], match[3], match[4])
        return self.answer(404)

    do_HEAD = do_GET

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_PUT(self):
        data = self.body()
        fault = self.fault()
        if fault:
            return self.play(fault, b"")
        match = re.fullmatch(r"/upload/([0-9a-f]{64})(?:/(\d+))?", self.path)
        if not match:
            return self.answer(404)
        if match[2]:
            objects.setdefault("parts/" + match[1], {})[int(match[2])] = data
        else:
            objects[match[1]] = data
        return self.answer(200, headers={"ETag": f'"{hashlib.md5(data).hexdigest()}"'})

    def do_POST(self):
        data = self.body()
        fault = self.fault()
        if fault:
            return self.play(fault, b"")
        path = urllib.parse.unquote(self.path.split("?")[0])
        base = f"http://{self.headers['Host']}"
        complete = re.fullmatch(r"/complete/([0-9a-f]{64})", path)
        if complete:
            parts = objects.pop("parts/" + complete[1])
            listed = [part["partNumber"] for part in json.loads(data)["parts"]]
            if listed != sorted(parts):
                return self.answer(400)
            objects[complete[1]] = b"".join(parts[number] for number in sorted(parts))
            return self.answer_json({})
        if self.headers.get("Authorization") != f"Bearer {self.options.token}":
            return self.refuse(401, "", "Invalid credentials in Authorization header")
        if path == "/api/repos/create":
            wanted = json.loads(data)
            name = f"{wanted.get('organization') or 'tester'}/{wanted['name']}"
            folder = os.path.join(self.options.folder, "models", name)
            if os.path.isdir(folder):
                return self.answer_json({"error": "You already created this model repo", "url": f"{base}/{name}"}, 409)
            os.makedirs(os.path.join(folder, "main"))
            with open(os.path.join(self.options.folder, "created.json"), "w") as file:
                json.dump(wanted, file)
            return self.answer_json({"url": f"{base}/{name}", "name": name})
        batch = re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path)
        if batch:
            answers = []
            for wanted in json.loads(data)["objects"]:
                answer = {"oid": wanted["oid"], "size": wanted["size"]}
                if wanted["oid"] not in objects:
                    upload = self.options.elsewhere or base
                    action = {"href": f"{upload}/upload/{wanted['oid']}"}
                    chunk = self.options.chunk
                    if chunk and wanted["size"] > chunk:
                        count = (wanted["size"] + chunk - 1) // chunk
                        action = {"href": f"{base}/complete/{wanted['oid']}",
                                  "header": {"chunk_size": str(chunk),
                                             **{f"{i + 1:05d}": f"{upload}/upload/{wanted['oid']}/{i + 1}"
                                                for i in range(count)}}}
                    answer["actions"] = {"upload": action, "verify": {"href": f"{base}/api/verify"}}
                answers.append(answer)
            return self.answer_json({"transfer": "basic", "objects": answers})
        if path == "/api/verify":
            wanted = json.loads(data)
            # What was sent elsewhere is not known here.
            right = bool(self.options.elsewhere) or wanted["oid"] in objects and len(objects[wanted["oid"]]) == wanted["size"] and \
                hashlib.sha256(objects[wanted["oid"]]).hexdigest() == wanted["oid"]
            return self.answer_json({}, 200 if right else 400)
        match = re.fullmatch(r"/api/models/(.+?)/(preupload|commit|branch|paths-info)/(.+)", path)
        if not match:
            return self.answer(404)
        folder = os.path.join(self.options.folder, "models", match[1])
        if not os.path.isdir(folder):
            return self.refuse(404, "RepoNotFound", "Repository not found")
        target = os.path.join(folder, match[3])
        if match[2] == "branch":
            os.makedirs(target, exist_ok=True)
            return self.answer_json({})
        if not os.path.isdir(target):
            return self.refuse(404, "RevisionNotFound", "Invalid rev id")
        if match[2] == "preupload":
            files = []
            for wanted in json.loads(data)["files"]:
                base64.b64decode(wanted["sample"], validate=True)
                there = os.path.join(target, wanted["path"])
                oid = None
                if os.path.exists(there):
                    with open(there, "rb") as file:
                        content = file.read()
                    oid = hashlib.sha256(content).hexdigest() if is_large(wanted["path"], len(content)) \
                        else git_name(content)
                files.append({"path": wanted["path"], "shouldIgnore": False, "oid": oid,
                              "uploadMode": "lfs" if is_large(wanted["path"], wanted["size"]) else "regular"})
            return self.answer_json({"files": files})
        for line in data.decode().splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "header":
                with lock, open(os.path.join(self.options.folder, "commits.log"), "a") as log:
                    log.write(json.dumps(value) + "\n")
                continue
            place = os.path.join(target, value["path"])
            if item["key"] == "deletedFile":
                os.remove(place)
                continue
            os.makedirs(os.path.dirname(place), exist_ok=True)
            content = base64.b64decode(value["content"]) if item["key"] == "file" else objects.get(value["oid"], b"")
            with open(place, "wb") as file:
                file.write(content)
        commits[target] = commits.get(target, 0) + 1
        commit = self.commit_of(folder, match[3])[0]
        return self.answer_json({"commitOid": commit, "commitUrl": f"{base}/{match[1]}/commit/{commit}"})


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Clients that give up are part of the tests; other errors are shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--token", default="hf_right")
    parser.add_argument("--elsewhere", default="")
    parser.add_argument("--chunk", type=int, default=0)
    Hub.options = parser.parse_args()
    server = Server(("127.0.0.1", 0), Hub)
    print(f"port {server.server_address[1]}", flush=True)
    # The test closes our standard input when it ends, however it ends.
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
