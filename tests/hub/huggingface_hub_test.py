"""huggingface_hub as the other client of the server that plays the Hub, and of the cache.

Skips, with a line that says so, where huggingface_hub cannot be imported.
"""
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAM = os.environ.get("DROVER_PROGRAM", "")

CLIENT = """
import sys
from huggingface_hub import HfApi, hf_hub_download, scan_cache_dir, snapshot_download, try_to_load_from_cache
{code}
"""


class HuggingFaceHub(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        self.server_folder = self.root / "server"
        self.server_folder.mkdir()
        # Large files come from another host, as on the Hub; huggingface_hub tells hosts apart by their names.
        storage = self.start()
        port = self.start("--elsewhere", f"http://localhost:{storage}")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))},
            "HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(self.root / "home"), "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", "no_proxy": "127.0.0.1,localhost",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        bytes_of = random.Random(1).randbytes
        self.files = {"config.json": b"{}\n", "model.safetensors": bytes_of(200_000), "sub/a b.txt": b"text\n",
                      **{f"more/{i}.txt": str(i).encode() for i in range(7)}}
        for path, content in self.files.items():
            place = self.server_folder / "models/org/tiny/main" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)

    def start(self, *options):
        """Starts a server, and returns its port."""
        server = subprocess.Popen([sys.executable, str(HERE / "hub_server.py"), str(self.server_folder), *options],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.stop, server)
        return int(server.stdout.readline().split()[1])

    @staticmethod
    def stop(server):
        server.stdin.close()
        server.wait()
        server.stdout.close()

    def python(self, code, **more):
        return subprocess.run([sys.executable, "-c", CLIENT.format(code=code)], check=True, text=True,
                              stdout=subprocess.PIPE, env={**self.environment, **more}).stdout.strip()

    def drover(self, *words, **more):
        return subprocess.run([PROGRAM, *words], check=True, text=True, stdout=subprocess.PIPE,
                              env={**self.environment, **more}).stdout.strip()

    def fetched(self):
        log = self.server_folder / "requests.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [entry for entry in map(json.loads, lines)
                if entry["method"] == "GET" and ("/resolve/" in entry["path"] or "/cdn/" in entry["path"])]

    def check(self, snapshot):
        for path, content in self.files.items():
            self.assertEqual((Path(snapshot) / path).read_bytes(), content, path)

    def test_it_reads_the_cache_that_drover_filled(self):
        snapshot = self.drover("fetch", "org/tiny")
        self.check(snapshot)
        before = len(self.fetched())
        self.assertEqual(self.python("print(snapshot_download('org/tiny'))"), snapshot)
        self.assertEqual(self.python("print(hf_hub_download('org/tiny', 'sub/a b.txt'))"), f"{snapshot}/sub/a b.txt")
        self.assertEqual(len(self.fetched()), before, "a file was fetched again")
        self.assertEqual(self.python("print(snapshot_download('org/tiny'))", HF_HUB_OFFLINE="1"), snapshot)
        self.assertEqual(self.python("print(try_to_load_from_cache('org/tiny', 'config.json'))"),
                         f"{snapshot}/config.json")
        report = self.python("info = scan_cache_dir(); repo, = info.repos\n"
                             "print(repo.repo_id, repo.nb_files, len(info.warnings), *repo.refs)")
        self.assertEqual(report, f"org/tiny {len(self.files)} 0 main")

    def test_drover_reads_the_cache_that_it_filled(self):
        snapshot = self.python("print(snapshot_download('org/tiny'))")
        before = len(self.fetched())
        self.assertEqual(self.drover("fetch", "org/tiny"), snapshot)
        self.assertEqual(len(self.fetched()), before, "a file was fetched again")
        self.check(snapshot)
        self.assertIn("model org/tiny", self.drover("cache", "list"))
        self.drover("cache", "prune")
        self.check(snapshot)

    def test_both_at_once_leave_one_whole_cache(self):
        programs = [subprocess.Popen([PROGRAM, "fetch", "org/tiny"], env=self.environment, stdout=subprocess.PIPE,
                                     text=True) if i % 2 else
                    subprocess.Popen([sys.executable, "-c",
                                      CLIENT.format(code="print(snapshot_download('org/tiny'))")],
                                     env=self.environment, stdout=subprocess.PIPE, text=True) for i in range(4)]
        outcomes = {program.communicate()[0].strip() for program in programs}
        self.assertEqual([program.returncode for program in programs], [0] * 4)
        self.assertEqual(len(outcomes), 1)
        self.check(outcomes.pop())
        blobs = self.root / "home/hub/models--org--tiny/blobs"
        self.assertEqual([path.name for path in blobs.iterdir() if path.name.endswith(".incomplete")], [])

    def test_a_folder_that_drover_filled_is_known_to_it(self):
        target = self.root / "here"
        self.drover("fetch", "org/tiny", "--local_dir", str(target))
        self.check(target)
        before = len(self.fetched())
        self.python(f"snapshot_download('org/tiny', local_dir={str(target)!r})")
        self.assertEqual(len(self.fetched()), before, "a file was fetched again")

    def test_the_token_of_a_login_is_its_token_too(self):
        subprocess.run([PROGRAM, "login"], input="hf_right\n", check=True, text=True, stdout=subprocess.DEVNULL,
                       env=self.environment)
        self.assertEqual(self.python("print(HfApi().whoami()['name'])"), "tester")


if __name__ == "__main__":
    if importlib.util.find_spec("huggingface_hub") is None:
        print("skipped, because huggingface_hub cannot be imported")
        sys.exit(0)
    unittest.main()
