"""The module installed in a folder of its own, which must need nothing of the build."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

from support import QUOTES, SOURCE, ModelTest, run


class InstalledTest(ModelTest):
    def test_an_installed_module_trains_by_itself(self):
        build, prefix = os.environ["DROVER_BUILD_DIR"], self.folder / "prefix"
        install = [
            os.environ["DROVER_CMAKE"],
            "--install",
            build,
            "--component",
            "python",
            "--prefix",
            str(prefix),
        ]
        done = subprocess.run(install, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        (extension,) = prefix.glob("lib*/**/_drover.abi3.so")
        for processes in (1, 2):
            with self.subTest(processes=processes):
                linker = self.folder / f"linker{processes}"
                linker.mkdir()
                changes = {
                    "PYTHONPATH": str(extension.parent.parent),
                    "LD_DEBUG": "libs",
                    "LD_DEBUG_OUTPUT": str(linker / "process"),
                }
                command = [
                    sys.executable,
                    SOURCE / "examples/finetune_quotes.py",
                    self.model_id,
                    QUOTES,
                    "out",
                    1,
                ]
                result = run(command, processes=processes, cwd=self.folder, changes=changes)
                self.assertEqual(result.returncode, 0, result.stdout)
                self.assertEqual(result.stdout.count("8 updates, mean loss"), 1, result.stdout)
                looks = [
                    line
                    for file in linker.iterdir()
                    for line in file.read_text(errors="replace").splitlines()
                ]
                outside = [line for line in looks if f"{build}/" in line]
                self.assertEqual(outside, [], "the linker looks into the build folder")
                loaded = {
                    Path(line.split("calling init: ")[1]).name
                    for line in looks
                    if "calling init: " in line and str(prefix) in line
                }
                self.assertIn("_drover.abi3.so", loaded)
                self.assertIn("libdrover.so.0", loaded)
                self.assertEqual("drover_mpi.so" in loaded, processes > 1)


if __name__ == "__main__":
    unittest.main()
