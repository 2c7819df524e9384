"""The code on the page of the module, docs/python.md, in its order."""

import os
import re
import shutil
import unittest

from support import QUOTES, SOURCE, ModelTest


class DocumentationTest(ModelTest):
    def test_the_code_runs(self):
        shutil.copy(QUOTES, self.folder / "quotes.jsonl")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        blocks = re.findall(r"```python\n(.*?)```", (SOURCE / "docs/python.md").read_text(), re.DOTALL)
        names = {}
        for block in blocks:
            exec(compile(block, "docs/python.md", "exec"), names)
        self.assertEqual(names["result"].global_step, 10)
        self.assertEqual(len(names["rows"]), 2)
        self.assertTrue((self.folder / "out/model.safetensors").exists())
        self.assertIn("StopWhenGood", names)


if __name__ == "__main__":
    unittest.main()
