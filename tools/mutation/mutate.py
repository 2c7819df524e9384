#!/usr/bin/env python3
"""Changes the program in small ways, one at a time, and sees whether the tests notice.

    tools/mutation/mutate.py                 100 mutants of src/train, src/io, src/args and `drover launch`
    tools/mutation/mutate.py --list          only show them
    tools/mutation/mutate.py --again         try the survivors of the last run again

A mutant is the program with one change in one line: a comparison turned or moved by one, `&&` for `||`, `+` for
`-`, a condition negated, a constant changed, a statement left out. It is built in a copy of the checkout and
tried with the test program of its folder (src/io: test_io). If a test fails, the mutant is killed. If all pass,
it survived: either no test looks there, and one should be written, or the change makes no difference that anybody
could see. Such a mutant goes into ignored.txt with the reason, and is not tried again.

The same --seed and sources give the same mutants. Everything is under build/mutation: the copy, its build
folder, and results.jsonl, from which a stopped run continues. Only Python's standard library is needed.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutation"
COPY = WORK / "source"
BUILD = COPY / "build" / "release"
RESULTS = WORK / "results.jsonl"
IGNORED = pathlib.Path(__file__).with_name("ignored.txt")

Group = collections.namedtuple("Group", "name sources target gtest_filter share")
GROUPS = [  # a file belongs to the first one that names it
    Group("plan", "src/train/engine/communication_plan.cpp", "test_parallel", "*CommunicationPlan*", 0.02),  # needs several ranks
    Group("resume", "src/train/checkpoint/hf_checkpoint.cpp", "test_app", "*HfResume*", 0.01),
    Group("train", "src/train/*/*.cpp", "test_train", "*", 0.35),
    Group("io", "src/io/*.cpp", "test_io", "*", 0.25),
    Group("args", "src/args/*.cpp", "test_args", "*", 0.16),
    Group("launch", "src/launch/*.cpp", "test_launch", "*", 0.17),
    Group("loopback", "src/launch/loopback/*.cpp", "test_launch", "LaunchSecurity.OnOneMachine*", 0.01),
    Group("sha256", "src/core/sha256.cpp", "test_core", "*Sha256*", 0.01),
    Group("launched", "src/run/launch_environment.cpp", "test_run", "LaunchEnvironment*", 0.01),
    Group("commands", "src/app/command_words.cpp", "test_app", "CommandLine*", 0.01),
]

# Lines in which a change shows nothing about the tests.
SKIPPED_LINES = re.compile(
    r"^\s*(#|namespace|using|template|static_assert|\}|require\()"  # no statements, or checks of what cannot happen
    r"|\bthrow\b|\bbug\(|Error\("                                   # what a message says
    r"|fmt::(print|format)|\bmessages?\b|\bwarning\(|\binfo\(|\bexplain\("
    r"|\.reserve\(|shrink_to_fit|_capacity\b"                       # speed, not behaviour
)


class Mutant:
    def __init__(self, group, path, number, original, changed):
        self.group, self.path, self.number = group, path, number
        self.original, self.changed = original, changed
        text = f"{path}\0{number}\0{original}\0{changed}"
        self.id = hashlib.sha256(text.encode()).hexdigest()[:12]

    def key(self):
        """What the ignore list knows it by: not the line's number, which moves."""
        return (self.path, self.original.strip(), self.changed.strip())

    def diff(self):
        return f"{self.path}:{self.number}\n- {self.original.strip()}\n+ {self.changed.strip()}"


# ------------------------------------------------------------------------------------------------------------
# making mutants

TOKENS_WITHOUT_CODE = re.compile(
    r'R"([^\s()\\]{0,16})\(.*?\)\1"'            # raw string
    r'|"(?:\\.|[^"\\\n])*"'                     # string
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])'"      # character, but not the separator of 1'000
    r"|//[^\n]*|/\*.*?\*/",
    re.DOTALL,
)


def code_only(text):
    """The text with comments and the insides of strings blanked, character for character."""

    def blank(match):
        kept = re.sub(r"[^\n]", " ", match.group())
        return kept if match.group().startswith("/") else '"' + kept[1:-1] + '"'

    return TOKENS_WITHOUT_CODE.sub(blank, text)


REPLACEMENTS = [
    (re.compile(r" == "), [" != "]),
    (re.compile(r" != "), [" == "]),
    (re.compile(r" < "), [" <= "]),
    (re.compile(r" <= "), [" < "]),
    (re.compile(r" > "), [" >= "]),
    (re.compile(r" >= "), [" > "]),
    (re.compile(r" && "), [" || "]),
    (re.compile(r" \|\| "), [" && "]),
    (re.compile(r"(?<=[\w)\]]) \+ (?!\")"), [" - "]),  # but not of texts
    (re.compile(r"(?<=[\w)\]]) - "), [" + "]),
    (re.compile(r" \* (?=\w)"), [" + "]),
    (re.compile(r" \+= (?!\")"), [" -= "]),
    (re.compile(r"\bstd::min\b"), ["std::max"]),
    (re.compile(r"\bstd::max\b"), ["std::min"]),
    (re.compile(r"\btrue\b"), ["false"]),
    (re.compile(r"\bfalse\b"), ["true"]),
    (re.compile(r"(?<![\w.<'])(\d+)(?![\w.'>])"), ["+1", "-1"]),  # integers, but not arguments of templates
    (re.compile(r"\bif \("), ["negated"]),
]

CALL = re.compile(r"^ {4,}(?!if\b|for\b|while\b|return\b|throw\b|switch\b|else\b|case\b)[\w.:>\[\]*-]+\(.*\);$")
ASSIGNMENT = re.compile(r"^ {4,}\*?[\w.>\[\]-]+ [+*/|&-]?= .*;$")


def negated(code, line, at):
    """`if (x)` as `if (!(x))`; None when the condition continues on the next line or holds a declaration."""
    begin = code.index("(", at)
    depth = 0
    for end in range(begin, len(code)):
        depth += (code[end] == "(") - (code[end] == ")")
        if depth == 0:
            condition = line[begin + 1 : end]
            if ";" in code[begin:end] or re.search(r"\w[&*]? \w+ = ", code[begin:end]):
                return None
            return f"{line[: begin + 1]}!({condition}){line[end:]}"
    return None


def changes_of(line, code, previous):
    """Every way to change a line; `code` is the line without strings and comments, `previous` the code before."""
    for pattern, replacements in REPLACEMENTS:
        for match in pattern.finditer(code):
            for replacement in replacements:
                if replacement == "negated":
                    changed = negated(code, line, match.start())
                elif replacement in ("+1", "-1"):
                    value = int(match.group(1)) + int(replacement)
                    changed = f"{line[: match.start()]}{value}{line[match.end() :]}" if value >= 0 else None
                else:
                    changed = line[: match.start()] + replacement + line[match.end() :]
                if changed is not None:
                    yield changed
    begins_here = previous.rstrip().endswith((";", "{", "}", ":", ")")) or not previous.strip()
    if begins_here and (CALL.match(code) or ASSIGNMENT.match(code)) and code.count("(") == code.count(")"):
        yield re.match(r" *", line).group() + "{}"


def all_mutants(ignored):
    taken = set()
    for group in GROUPS:
        for path in sorted(set(ROOT.glob(group.sources)) - taken):
            taken.add(path)
            text = path.read_text()
            lines, codes = text.split("\n"), code_only(text).split("\n")
            previous = ""
            for number, (line, code) in enumerate(zip(lines, codes), 1):
                if code.strip() and not SKIPPED_LINES.search(code):
                    for changed in changes_of(line, code, previous):
                        mutant = Mutant(group.name, str(path.relative_to(ROOT)), number, line, changed)
                        if mutant.key() not in ignored:
                            yield mutant
                if code.strip():
                    previous = code


def chosen_mutants(count, seed, ignored):
    """At most one per line, as many of each group as its share says, groups in turns."""
    by_group = collections.defaultdict(lambda: collections.defaultdict(list))
    for mutant in all_mutants(ignored):
        by_group[mutant.group][mutant.path, mutant.number].append(mutant)
    queues = {}
    for group in GROUPS:
        generator = random.Random(f"{seed} {group.name}")
        lines = sorted(by_group[group.name])
        generator.shuffle(lines)
        queues[group.name] = [generator.choice(by_group[group.name][line]) for line in lines]
    chosen, taken = [], collections.Counter()
    while len(chosen) < count and any(queues.values()):
        group = min((g for g in GROUPS if queues[g.name]), key=lambda g: (taken[g.name] + 1) / g.share)
        chosen.append(queues[group.name].pop(0))
        taken[group.name] += 1
    return chosen


def read_ignored():
    """Blocks of ignored.txt: a path, "- line", "+ changed line", "# reason"."""
    known = {}
    if not IGNORED.exists():
        return known
    for block in re.split(r"\n\s*\n", IGNORED.read_text()):
        rows = [row for row in block.splitlines() if row.strip()]
        if not rows or all(row.startswith("#") for row in rows):
            continue
        path, original, changed, *reason = rows
        if not original.startswith("- ") or not changed.startswith("+ ") or not reason:
            sys.exit(f"{IGNORED}: this block is not a path, a - line, a + line and a # reason:\n{block}")
        file = ROOT / path
        if not file.is_file() or original[2:] not in map(str.strip, file.read_text().splitlines()):
            sys.exit(f"{IGNORED}: the line of this block is no longer there; remove the block:\n{block}")
        known[path, original[2:], changed[2:]] = " ".join(reason)
    return known


# ------------------------------------------------------------------------------------------------------------
# trying them


def run(command, log, timeout=None, cwd=COPY):
    """The exit status, or None when it took longer; nothing that it started is left behind then."""
    with open(log, "w") as output:
        process = subprocess.Popen(command, cwd=cwd, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   start_new_session=True)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            time.sleep(1)
            return None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def refresh_copy():
    """The copy becomes the checkout as it is, commits or not; unchanged files keep their times."""
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                           capture_output=True).stdout.decode().split("\0")
    names = {name for name in names if name and (ROOT / name).is_file()}
    for name in names:
        source, target = ROOT / name, COPY / name
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        os.utime(target)
    for path in COPY.rglob("*"):
        relative = path.relative_to(COPY)
        if path.is_file() and relative.parts[0] != "build" and str(relative) not in names:
            path.unlink()


class Bench:
    """The copy with its build folder, and how long the tests take on the program as it is."""

    def __init__(self, options):
        self.options = options
        self.log = WORK / "log.txt"
        self.filters = {}  # of each group: tests that are done soon, then the others
        self.seconds = {}
        os.environ["TMPDIR"] = str(WORK / "tmp")  # what mutants leave behind goes with it
        os.environ["OMP_NUM_THREADS"] = "1"  # results do not depend on it, and somebody else may use the machine
        os.environ["CCACHE_READONLY"] = "1"  # where there is a ccache: mutants are no use to it
        self.clear()
        refresh_copy()
        configure = ["cmake", "--preset", "release", "-DDROVER_CUDA=OFF"]
        if run(configure, self.log) != 0:
            sys.exit(f"The copy cannot be configured; see {self.log}.")

    def clear(self):
        shutil.rmtree(WORK / "tmp", ignore_errors=True)
        (WORK / "tmp").mkdir(parents=True)

    def build(self, group):
        command = ["cmake", "--build", "--preset", "release", "--parallel", str(self.options.jobs), "--target", group.target]
        return run(command, self.log) == 0

    def test(self, group, gtest_filter, timeout=None):
        command = [str(BUILD / "tests" / group.target), f"--gtest_filter={gtest_filter}", "--gtest_fail_fast"]
        status = run(command, self.log, timeout)
        self.clear()
        return status

    def prepare(self, group):
        """Builds and tests the program as it is, once per group."""
        if group.name in self.filters:
            return
        print(f"{group.name}: building and testing the program as it is", flush=True)
        if not self.build(group):
            sys.exit(f"The program as it is does not build; see {self.log}.")
        begin = time.monotonic()
        if self.test(group, group.gtest_filter) != 0:
            sys.exit(f"A test fails on the program as it is; see {self.log}.")
        self.seconds[group.name] = time.monotonic() - begin
        times = re.findall(r"\[       OK \] (\S+?),?(?: \(| .*\()(\d+) ms\)", self.log.read_text(errors="replace"))
        slow = [name for name, milliseconds in times if int(milliseconds) > 1000]
        self.filters[group.name] = [f"{group.gtest_filter}-{':'.join(slow)}"] + ([":".join(slow)] if slow else [])
        print(f"{group.name}: {self.seconds[group.name]:.0f} s", flush=True)

    def try_mutant(self, mutant):
        group = next(g for g in GROUPS if g.name == mutant.group)
        if self.options.tests:
            target, gtest_filter = self.options.tests.split(":", 1)
            group = group._replace(name=target, target=target, gtest_filter=gtest_filter)
        self.prepare(group)
        file = COPY / mutant.path
        text = file.read_text()
        lines = text.split("\n")
        assert lines[mutant.number - 1] == mutant.original, f"{mutant.path} has changed under way"
        lines[mutant.number - 1] = mutant.changed
        lines.insert(0, "#pragma GCC optimize(\"O0\")")  # it is compiled for this once
        try:
            file.write_text("\n".join(lines))
            if not self.build(group):
                return "did not compile", ""
            for gtest_filter in self.filters[group.name]:
                status = self.test(group, gtest_filter, 3 * self.seconds[group.name] + 30)
                if status is None:
                    return "timed out", ""
                if status != 0:
                    failed = re.search(r"\[  FAILED  \] ([\w./]+)", self.log.read_text(errors="replace"))
                    return "killed", failed.group(1) if failed else f"ended with {status}"
            return "survived", ""
        finally:
            file.write_text(text)


def summary(results):
    table = collections.defaultdict(collections.Counter)
    for result in results:
        table[result["group"]][result["outcome"]] += 1
        table["all"][result["outcome"]] += 1
    kinds = ["killed", "timed out", "survived", "did not compile"]
    rows = [f"{'':8}" + "".join(f"{kind:>17}" for kind in kinds)]
    for name in [g.name for g in GROUPS if g.name in table] + ["all"]:
        rows.append(f"{name:8}" + "".join(f"{table[name][kind]:17}" for kind in kinds))
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="how many mutants (100)")
    parser.add_argument("--seed", default="1", help="which ones (1)")
    parser.add_argument("--only", default="", metavar="PATH", help="only of files whose path contains this")
    parser.add_argument("--jobs", type=int, default=2, help="of the build (2)")
    parser.add_argument("--minutes", type=float, default=0, help="begin no mutant after this long; 0: no limit")
    parser.add_argument("--list", action="store_true", help="show the mutants, build nothing")
    parser.add_argument("--again", action="store_true", help="try the survivors of earlier runs again")
    parser.add_argument("--with", dest="tests", metavar="PROGRAM:FILTER",
                        help="try them with these tests instead: test_app:HfResume*")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    options = parser.parse_args()

    if options.fresh:
        RESULTS.unlink(missing_ok=True)
    earlier = {}
    if RESULTS.exists():
        for row in RESULTS.read_text().splitlines():
            result = json.loads(row)
            earlier[result["id"]] = result
    ignored = read_ignored()
    if options.again:
        # The lines may have moved since; the same change of the same line is the same mutant.
        made = list(all_mutants(ignored))
        mutants = []
        for r in [r for r in earlier.values() if r["outcome"] == "survived"]:
            key = (r["path"], r["original"].strip(), r["changed"].strip())
            alike = [mutant for mutant in made if mutant.key() == key]
            if alike:
                mutants.append(min(alike, key=lambda mutant: abs(mutant.number - r["number"])))
                mutants[-1].id = r["id"]
        earlier = {key: r for key, r in earlier.items() if r["outcome"] != "survived"}
    else:
        mutants = chosen_mutants(options.count, options.seed, ignored)
    mutants = [mutant for mutant in mutants if options.only in mutant.path]
    if options.list:
        print("\n\n".join(mutant.diff() for mutant in mutants))
        return

    os.nice(19)
    WORK.mkdir(parents=True, exist_ok=True)
    COPY.mkdir(exist_ok=True)
    end = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    bench = None
    results = []
    for index, mutant in enumerate(mutants, 1):
        if mutant.id in earlier:
            results.append(earlier[mutant.id])
            continue
        if time.monotonic() > end:
            print(f"The time is over: {len(mutants) - index + 1} mutants were not tried.")
            break
        bench = bench or Bench(options)
        outcome, by = bench.try_mutant(mutant)
        result = {"id": mutant.id, "group": mutant.group, "path": mutant.path, "number": mutant.number,
                  "original": mutant.original, "changed": mutant.changed, "outcome": outcome, "by": by}
        results.append(result)
        with open(RESULTS, "a") as file:
            file.write(json.dumps(result) + "\n")
        print(f"{index}/{len(mutants)} {outcome} {by}\n{mutant.diff()}\n", flush=True)

    survivors = [r for r in results if r["outcome"] == "survived"]
    if survivors:
        print("Survived:\n")
    for r in survivors:
        print(Mutant(r["group"], r["path"], r["number"], r["original"], r["changed"]).diff() + "\n")
    print(summary(results))


if __name__ == "__main__":
    main()
