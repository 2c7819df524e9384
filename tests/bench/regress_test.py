"""bench/regress with a program that plays `drover bench`: what it prints, records and decides.

The fake prints the figures of figures.json, one per call of a case, and logs its calls.
"""
import contextlib
import csv
import importlib.machinery
import importlib.util
import io
import json
import platform
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
REGRESS = Path(__file__).resolve().parents[2] / "bench" / "regress"
LOADER = importlib.machinery.SourceFileLoader("regress", str(REGRESS))
regress = importlib.util.module_from_spec(importlib.util.spec_from_loader("regress", LOADER))
LOADER.exec_module(regress)

FAKE = """#!{python} -IS
import json, pathlib, sys
here = pathlib.Path(__file__).resolve().parent
name = pathlib.Path(__file__).name
words = sys.argv[1:]
with open(here / "calls.txt", "a") as log:
    print(name, *words, file=log)
given = json.loads((here / (name + ".json")).read_text())
if words[:2] != ["bench", "--json"] or words[-2] != "--device":
    sys.exit("unexpected words")
model = words[words.index("--model") + 1]
if "--seq" in words and words[words.index("--seq") + 1] == "16":
    if "broken" in given:
        sys.exit(given["broken"])
    print(json.dumps({{"device": given["device"], "tokens_per_second": 1, "planned_memory_bytes": 1}}))
    sys.exit()
figures = given["figures"][model]
figure = figures.pop(0) if len(figures) > 1 else figures[0]
(here / (name + ".json")).write_text(json.dumps(given))
if isinstance(figure, str):
    print("drover: something before", file=sys.stderr)
    sys.exit("drover: " + figure)
if figure is None:
    print("not a report")
    sys.exit()
speed, gib = figure if isinstance(figure, list) else (figure, 10)
print(json.dumps({{"device": given["device"], "tokens_per_second": speed, "planned_memory_bytes": gib * 2**30}}))
"""

H200 = "NVIDIA H200, 132 multiprocessors, 139.72 GiB"


class Regress(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        self.cases([("large", "cuda"), ("small", "cuda"), ("tiny", "cpu")])

    def cases(self, cases):
        (self.root / "cases.json").write_text(json.dumps(
            [{"name": name, "device": device, "arguments": f"--model {name} --steps 5"} for name, device in cases]))

    def program(self, name="drover", device=H200, **given):
        path = self.root / name
        path.write_text(FAKE.format(python=sys.executable))
        path.chmod(0o755)
        (self.root / (name + ".json")).write_text(json.dumps({"device": device, **given}))
        return str(path)

    def records(self, *rows):
        with (self.root / "records.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow("case machine date commit tokens_per_second planned_memory_gib note".split())
            for case, machine, speed, gib in rows:
                writer.writerow([case, machine, "2026-01-01", "abc", speed, gib, ""])

    def regress(self, *words, program=None):
        words = ["--program", program or str(self.root / "drover"), "--cases", str(self.root / "cases.json"),
                 "--records", str(self.root / "records.csv"), *words]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                status = regress.main(words)
            except SystemExit as end:
                status = end.code
        self.output = printed.getvalue()
        return status

    def row(self, case):
        """The words of a case's line after its name."""
        for line in self.output.splitlines():
            if line.startswith(case + " "):
                return line[len(case):].split()
        self.fail(f"no line of {case} in\n{self.output}")
        return []

    def calls(self, name="drover"):
        """The models of the calls, without the one that asks for the device."""
        calls = [line.split() for line in (self.root / "calls.txt").read_text().splitlines()]
        return [words[words.index("--model") + 1] for words in calls if words[0] == name and "16" not in words]

    def test_a_figure_within_the_noise_is_the_same(self):
        self.program(figures={"large": [971], "small": [1029]})
        self.records(("large", "NVIDIA H200", 1000, 10), ("small", "NVIDIA H200", 1000, 10))
        self.assertEqual(self.regress(), 0, self.output)
        self.assertEqual(self.row("large"), ["971", "1,000", "0.971", "3", "%", "10.0", "(10.0)", "GiB", "same"])
        self.assertEqual(self.row("small")[-1], "same")
        self.assertEqual(self.calls(), ["large", "small"])  # once each: nothing to doubt
        self.assertIn("--model large --steps 5 --device cuda", (self.root / "calls.txt").read_text())

    def test_a_lower_figure_is_measured_again_and_then_counts(self):
        self.program(figures={"large": [960, 955, 965], "small": [1000]})
        self.records(("large", "NVIDIA H200", 1000, 10), ("small", "NVIDIA H200", 1000, 10))
        self.assertEqual(self.regress(), 1, self.output)
        self.assertEqual(self.row("large")[:3], ["965", "1,000", "0.965"])
        self.assertEqual(self.row("large")[8:], ["SLOWER", "best", "of", "3"])
        self.assertEqual(self.row("small")[-1], "same")  # the others are still compared
        self.assertEqual(self.calls(), ["large"] * 3 + ["small"])

    def test_a_figure_that_recovers_does_not_count(self):
        self.program(figures={"large": [800, 990, 700]})
        self.records(("large", "NVIDIA H200", 1000, 10))
        self.assertEqual(self.regress(), 0, self.output)
        self.assertEqual(self.row("large")[8:], ["same", "best", "of", "2"])
        self.assertEqual(self.calls(), ["large"] * 2)

    def test_runs_that_differ_by_more_than_they_lack_tell_nothing(self):
        self.program(figures={"large": [700, 900, 800]})
        self.records(("large", "NVIDIA H200", 1000, 10))
        self.assertEqual(self.regress(), 3, self.output)
        self.assertEqual(self.row("large")[8], "unclear")
        # A case that is surely slower decides.
        self.program(figures={"large": [700, 900, 800], "small": [500]})
        self.records(("large", "NVIDIA H200", 1000, 10), ("small", "NVIDIA H200", 1000, 10))
        self.assertEqual(self.regress(), 1, self.output)

    def test_records_that_differ_widen_the_noise(self):
        self.program(figures={"large": [905]})
        self.records(("large", "NVIDIA H200", 1000, 10), ("large", "NVIDIA H200", 900, 10))
        self.assertEqual(self.regress(), 0, self.output)
        self.assertEqual(self.row("large")[1:5], ["1,000", "0.905", "10", "%"])
        self.program(figures={"large": [895]})
        self.assertEqual(self.regress(), 1, self.output)

    def test_a_faster_figure_is_named(self):
        self.program(figures={"large": [1040]})
        self.records(("large", "NVIDIA H200", 1000, 10))
        self.assertEqual(self.regress(), 0, self.output)
        self.assertEqual(self.row("large")[-1], "faster")

    def test_more_memory_is_a_regression(self):
        self.records(("large", "NVIDIA H200", 1000, 129.5))
        for gib, status in [(129.5, 0), (129.9, 0), (120, 0), (131, 1)]:
            self.program(figures={"large": [[1000, gib]]})
            self.assertEqual(self.regress(), status, self.output)
            self.assertIn("MORE MEMORY" if status else "same", self.output)
        # A record allows for its own rounding.
        for recorded, gib, status in [("0.5", 0.549, 0), ("0.500", 0.549, 1), ("0.500", 0.502, 0)]:
            self.records(("large", "NVIDIA H200", 1000, recorded))
            self.program(figures={"large": [[1000, gib]]})
            self.assertEqual(self.regress(), status, self.output)
        self.program(figures={"large": [[1000, 131]]})
        self.records(("large", "NVIDIA H200", 1000, ""))  # the memory was not recorded
        self.assertEqual(self.regress(), 0, self.output)

    def test_only_cases_with_records_of_this_machine_run(self):
        self.program(figures={"small": [1000]})
        self.records(("large", "NVIDIA H100", 1000, 10), ("small", "NVIDIA H200", 1000, 10), ("tiny", "NVIDIA H200", 1, 1))
        self.assertEqual(self.regress(), 0, self.output)
        self.assertEqual(self.calls(), ["small"])
        self.program(device="NVIDIA L4, 58 multiprocessors, 22.05 GiB", figures={})
        self.assertEqual(self.regress(), 2)
        self.assertIn("regress: records.csv has no figures of NVIDIA L4. Measure a good build with --record", self.output)

    def test_only_names_cases(self):
        self.program(figures={"large": [1000], "small": [1000]})
        self.records(("large", "NVIDIA H200", 1000, 10), ("small", "NVIDIA H200", 1000, 10))
        self.assertEqual(self.regress("--only", "SMA,other"), 0, self.output)
        self.assertEqual(self.calls(), ["small"])
        self.assertEqual(self.regress("--only", "tiny"), 2)
        self.assertIn("No cuda case is named like tiny.", self.output)

    def test_recorded_figures_are_compared_with_later(self):
        program = self.program(device="CPU, AVX2, 2 threads", figures={"tiny": [100, 120, 110]})
        self.assertEqual(self.regress("--record", "--note", "quiet, alone", "--commit", "1234567"), 0, self.output)
        with (self.root / "records.csv").open(newline="") as file:
            written = list(csv.DictReader(file))
        self.assertEqual(len(written), 1)
        self.assertEqual([written[0][key] for key in ("case", "commit", "tokens_per_second", "planned_memory_gib", "note")],
                         ["tiny", "1234567", "120.0", "10.0", "quiet, alone"])
        self.assertTrue(written[0]["machine"].endswith(", AVX2, 2 threads"), written)
        self.assertRegex(written[0]["date"], r"^\d{4}-\d\d-\d\d$")
        for figure, status in [(109, 0), (107, 1)]:  # 10 % of noise on a CPU
            self.program(device="CPU, AVX2, 2 threads", figures={"tiny": [figure]})
            self.assertEqual(self.regress(program=program), status, self.output)
        # Fewer threads are another machine.
        self.program(device="CPU, AVX2, 1 thread", figures={"tiny": [50]})
        self.assertEqual(self.regress(), 2, self.output)
        # A second record is added below the first.
        self.program(device="CPU, AVX2, 2 threads", figures={"tiny": [130]})
        self.assertEqual(self.regress("--record", "--runs", "1"), 0, self.output)
        self.assertEqual(len((self.root / "records.csv").read_text().splitlines()), 3)

    def test_processors_of_one_brand_are_told_apart(self):
        cpuinfo = self.root / "cpuinfo"
        for text, name in [
                ("processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nprocessor\t: 1\n"
                 "cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n", "AMD EPYC (family 26, model 2)"),
                ("model name\t: Some ARM\n", "Some ARM"), ("", platform.machine())]:
            cpuinfo.write_text(text)
            self.assertEqual(regress.processor_name(cpuinfo), name)
        self.assertEqual(regress.processor_name(self.root / "missing"), platform.machine())

    def test_another_build_runs_in_turn(self):
        self.program(figures={"large": [1000], "small": [900, 910, 905]})
        other = self.program("other", figures={"large": [1005, 1000, 1003], "small": [1000]})
        self.assertEqual(self.regress("--against", other), 1, self.output)  # without any records
        self.assertEqual(self.row("large")[1:5], ["1,005", "0.995", "1", "%"])
        self.assertEqual(self.row("large")[-4], "same")
        self.assertIn("SLOWER", self.row("small"))
        self.assertEqual(self.calls(), ["large"] * 3 + ["small"] * 3)
        self.assertEqual(self.calls("other"), ["large"] * 3 + ["small"] * 3)
        other = self.program("other", figures={"large": ["unknown flag"]})
        self.assertEqual(self.regress("--against", other, "--only", "large"), 1)
        self.assertIn(f"{other}: exit status 1: drover: unknown flag", self.output)

    def test_a_case_that_fails_is_a_regression(self):
        self.records(("large", "NVIDIA H200", 1000, 10), ("small", "NVIDIA H200", 1000, 10))
        self.program(figures={"large": ["no room"], "small": [1000]})
        self.assertEqual(self.regress(), 1)
        self.assertIn("FAILS       exit status 1: drover: no room", self.output)
        self.assertEqual(self.row("small")[-1], "same")
        self.program(figures={"large": [None], "small": [1000]})
        self.assertEqual(self.regress(), 1)
        self.assertIn("printed no report", self.output)
        self.program(figures={"large": ["no room"], "small": [1000]})
        before = (self.root / "records.csv").read_text()
        self.assertEqual(self.regress("--record", "--only", "large"), 1)
        self.assertIn("nothing is recorded", self.output)
        self.assertEqual((self.root / "records.csv").read_text(), before)

    def test_what_cannot_be_done_is_said(self):
        self.assertEqual(self.regress(program=str(self.root / "missing")), 2)
        self.assertIn("missing cannot be started (No such file or directory). Build it", self.output)
        self.program(broken="drover: no such device")
        self.assertEqual(self.regress(), 2)
        self.assertIn("does not run here: exit status 1: drover: no such device", self.output)
        self.program(figures={})
        for words in (["--record", "--against", "x"], ["--runs", "0"], ["--device", "tpu"], ["surplus"]):
            self.assertEqual(self.regress(*words), 2, words)
        (self.root / "records.csv").write_text("case,machine,date,commit,tokens_per_second,planned_memory_gib,note\n"
                                               "large,NVIDIA H200,2026-01-01,abc,fast,10,\n")
        self.assertEqual(self.regress(), 2)
        self.assertIn("records.csv, line 2, is no record.", self.output)
        self.cases([("large", "cuda"), ("large", "cuda")])
        self.assertEqual(self.regress(), 2)
        self.assertIn("has the case large twice.", self.output)


class Committed(unittest.TestCase):
    """The program, the cases and the records in bench/."""

    def test_it_is_a_program(self):
        done = subprocess.run([str(REGRESS), "--program", "/nowhere/drover"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "regress: /nowhere/drover cannot be started (No such file or directory). Build it, "
                                      "or name it with --program.\n")

    def test_every_record_is_of_a_case(self):
        folder = REGRESS.parent
        cases = {case["name"]: case for case in json.loads((folder / "regress_cases.json").read_text())}
        with (folder / "regress_records.csv").open(newline="") as file:
            records = list(csv.DictReader(file))
        self.assertGreater(len(records), 10)
        for record in records:
            self.assertIn(record["case"], cases)
            self.assertGreater(float(record["tokens_per_second"]), 0)
            is_cpu = "thread" in record["machine"]
            self.assertEqual(cases[record["case"]]["device"], "cpu" if is_cpu else "cuda", record)
        for case in cases.values():
            words = case["arguments"].split()
            self.assertFalse({"--device", "--json"} & set(words), case)
            model = words[words.index("--model") + 1]
            self.assertTrue((folder.parent / "examples/configs" / (model + ".json")).exists(), model)


if __name__ == "__main__":
    unittest.main()
