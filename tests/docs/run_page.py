#!/usr/bin/env python3
"""Runs the commands of a page of the documentation: its blocks of ```sh, in order, in one shell.

  run_page.py --drover build/release/drover docs/hub.md      as `make test` does
  run_page.py --drover build/release/drover --full README.md as `make test-docs` does: at full length
  run_page.py --list                                         what is run and what is not, for every page

The shell stands in a copy of a fresh checkout after `make`, with a home and a Hub of its own (hub_server.py). The
first command that fails fails the page. What a page needs beside its commands is in comments, which are invisible:

  <!-- test: SHELL LINES -->          run at that place: files that the reader would have, and checks of what the
                                      commands did. prepare.sh has functions for both
  <!-- test with: THIS => THAT -->    from there on, THAT stands for THIS in the commands; a line for each.
                                      So `…` gets a meaning, and sizes become small. ^THIS is
                                      only meant at the beginning of a command
  <!-- quick test with: A => B -->    the same, but not with --full

not_run.txt lists the commands that are not run, with the reason. A command that is neither run nor listed cannot be:
what is not listed is run.
"""
import argparse
import contextlib
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
COMMENT = re.compile(r"^ {0,3}<!-- *(test|test with|quick test with): ?(.*?)-->", re.S | re.M)
BLOCK = re.compile(r"^( *)```(?:sh|bash) *\n(.*?)^\1```", re.S | re.M)
DOTS = re.compile(r"(?<!\S)…(?!\S)")
ANY_BLOCK = re.compile(r"^( *)```.*?^\1```", re.S | re.M)


class PageError(Exception):
    pass


@dataclasses.dataclass
class Step:
    """A command of a page, or (hidden) lines of a comment. `why` says why it is not run, if it is not."""
    place: str
    text: str
    hidden: bool = False
    why: str = ""


@dataclasses.dataclass
class Exemption:
    """A line of not_run.txt."""
    place: str
    page: str
    beginning: str
    condition: str
    reason: str
    used: bool = False


@dataclasses.dataclass
class Replacement:
    place: str
    this: str
    that: str
    quick: bool
    used: bool = False

    def applied_to(self, command):
        if self.this.startswith("^"):
            return self.that + command[len(self.this) - 1:] if command.startswith(self.this[1:]) else command
        return command.replace(self.this, self.that)


def is_complete(text):
    """Whether these lines are whole commands: no open quote, loop, here-document or continued line."""
    if re.search(r"(?<!\\)(\\\\)*\\$", text):
        return False
    checked = subprocess.run(["bash", "-n"], input=text + "\n", text=True, capture_output=True, check=False)
    return checked.returncode == 0 and "here-document" not in checked.stderr


def commands_of(block):
    """(line in the block, command) of each command, without lines that are only comments."""
    pending, start = [], 0
    for number, line in enumerate(block.splitlines()):
        if not pending:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            start = number
        pending.append(line)
        if is_complete("\n".join(pending)):
            yield start, "\n".join(pending)
            pending = []
    if pending:
        yield start, "\n".join(pending)  # bash says what is wrong with it


def read_exemptions(path):
    """The lines of not_run.txt: PAGE | BEGINNING OF THE COMMAND | WHEN | REASON."""
    exemptions = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(" | ")]
        if len(parts) != 4 or not all(parts) or not re.fullmatch("never|full|if .+", parts[2]):
            raise PageError(f"{path.name}:{number}: expected PAGE | BEGINNING | never, full or if COMMAND | REASON")
        exemptions.append(Exemption(f"{path.name}:{number}", *parts))
    return exemptions


def can_run(condition, full, build):
    """Whether commands with this condition are run now. $BUILD is the folder of the program."""
    if condition.startswith("if "):
        checked = subprocess.run(["bash", "-c", condition[3:]], env={**os.environ, "BUILD": str(build)},
                                 capture_output=True, check=False)
        return checked.returncode == 0
    return condition == "full" and full


def steps_of(page, text, exemptions, full, build):
    """The steps of a page, in order, with what stands for what done. Checks that all comments and exemptions are used."""
    blocks = [match.span() for match in ANY_BLOCK.finditer(text)]
    found = [(m.start(), m) for m in COMMENT.finditer(text) if not any(a < m.start() < b for a, b in blocks)]
    found += [(m.start(), m) for m in BLOCK.finditer(text)]
    own = [exemption for exemption in exemptions if exemption.page == page]
    replacements, steps = [], []
    for at, match in sorted(found, key=lambda item: item[0]):
        line = text.count("\n", 0, at) + 1
        if match.re is COMMENT:
            kind, body = match.groups()
            if kind == "test":
                steps += [Step(f"{page}:{line + offset}", command, hidden=True) for offset, command in commands_of(body)]
                continue
            for offset, rule in enumerate(body.strip().splitlines()):
                this, arrow, that = rule.partition(" => ")
                if not arrow:
                    raise PageError(f"{page}:{line + offset}: expected THIS => THAT: {rule}")
                replacements.append(Replacement(f"{page}:{line + offset}", this.strip(), that.strip(), kind != "test with"))
            continue
        indent = len(match[1])
        block = "\n".join(row[indent:] for row in match[2].splitlines())
        for offset, command in commands_of(block):
            step = Step(f"{page}:{line + 1 + offset}", command)
            for exemption in own:
                if command.startswith(exemption.beginning):
                    exemption.used = True
                    step.why = "" if can_run(exemption.condition, full, build) else f"{exemption.condition}: {exemption.reason}"
                    break
            for replacement in replacements:
                changed = replacement.applied_to(step.text)
                replacement.used = replacement.used or changed != step.text
                if not (full and replacement.quick):
                    step.text = changed
            if DOTS.search(step.text) and not step.why:
                raise PageError(f"{step.place}: no comment of the page says what stands for … in: {command}")
            steps.append(step)
    for unused in [*replacements, *own]:
        if not unused.used:
            what = unused.this if isinstance(unused, Replacement) else unused.beginning
            raise PageError(f"{unused.place}: no command of {page} has this: {what}")
    return steps


def make_checkout(world, drover):
    """A folder like a fresh checkout after `make`. What commands write is not in the real one."""
    checkout = world / "checkout"
    (checkout / "build").mkdir(parents=True)
    for entry in SOURCE.iterdir():
        if entry.name in ("docs", "examples"):
            shutil.copytree(entry, checkout / entry.name, symlinks=True)
        elif entry.name != "build" and not entry.name.startswith("."):
            (checkout / entry.name).symlink_to(entry)
    (checkout / "build/release").symlink_to(drover.parent)
    return checkout


def environment_of(world, drover, hub, full):
    """What a user has, and nothing of the one who runs the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ", "USER", "LD_LIBRARY_PATH", "ASAN_OPTIONS",
                                                "UBSAN_OPTIONS", "CUDA_VISIBLE_DEVICES") if name in os.environ}
    path = f"{drover.parent}:{kept.get('PATH', '/usr/bin:/bin')}"
    return {**kept, "PATH": path, "HOME": str(world / "home"), "TMPDIR": str(world / "tmp"), "WORLD": str(world),
            "DOCS_TESTS": str(HERE), "HF_ENDPOINT": hub, "no_proxy": "127.0.0.1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            **({} if full else {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}), "PYTHONDONTWRITEBYTECODE": "1",
            # Containers are root, and have fewer cores than the commands have processes.
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def script_of(steps, world):
    """The steps as a script. What they write to /tmp is in the world, so that pages can run side by side."""
    own = re.compile(r"(?<![\w./])/tmp/")
    lines = ['. "$DOCS_TESTS/prepare.sh"']
    for step in steps:
        if step.why:
            lines.append(f"not_run {quoted(step.place)} {quoted(step.text)} {quoted(step.why)}")
        else:
            start = "hidden_step" if step.hidden else "step"
            text = own.sub(f"{world}/tmp/", step.text)
            lines.append(f"{start} {quoted(step.place)} {quoted(step.text)}\n{{\n{text}\n}}\npassed $?")
    return "\n".join([*lines, "page_is_done", ""])


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


@contextlib.contextmanager
def hub_of(steps, folder):
    """The address of a Hub with the repositories of this folder, if a comment makes one; else of none."""
    if not any(step.hidden and "hub_" in step.text for step in steps):
        yield "http://127.0.0.1:1"
        return
    with subprocess.Popen([sys.executable, str(SOURCE / "tests/hub/hub_server.py"), str(folder)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline().split()[1])}"
        finally:
            server.kill()


def run(page, steps, drover, keep, full):
    """Runs the steps; returns whether all passed. Everything the commands print is in a log, shown if one fails."""
    world = Path(keep) if keep else Path(tempfile.mkdtemp(prefix="drover-docs-"))
    for folder in ("home", "tmp", "hub"):
        (world / folder).mkdir(parents=True)
    checkout = make_checkout(world, drover)
    script, log = world / "page.sh", world / "log"
    script.write_text(script_of(steps, world))
    try:
        with hub_of(steps, world / "hub") as hub, open(log, "wb") as output:
            shell = subprocess.Popen(["bash", str(script)], cwd=checkout, stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=subprocess.STDOUT, start_new_session=True,
                                     env=environment_of(world, drover, hub, full))
            try:
                shell.wait()
            finally:
                try:
                    os.killpg(shell.pid, signal.SIGKILL)  # what the commands left in the background
                except ProcessLookupError:
                    pass
                shell.wait()
        passed = shell.returncode == 0 and (world / "done").exists()
        if not passed:
            sys.stdout.write(last_of(log.read_text(errors="replace")))
            print(f"{page}: the last command above failed.")
        return passed
    finally:
        if not keep:
            shutil.rmtree(world, ignore_errors=True)


def last_of(log):
    """The log from the heading of its last command on, and not more of it than one wants to see."""
    lines = log[max(log.rfind("\n=== "), 0):].splitlines()
    cut = lines if len(lines) <= 80 else [*lines[:20], "  [more lines]", *lines[-60:]]
    return "\n".join(cut) + "\n"


def all_pages():
    """Every page with commands."""
    pages = [SOURCE / "README.md", *sorted((SOURCE / "docs").rglob("*.md")), SOURCE / "CONTRIBUTING.md"]
    return [page for page in pages if BLOCK.search(page.read_text())]


def take(page, steps, options):
    """Runs a page, or lists it; returns whether all is well."""
    for step in steps:
        if step.why or options.list and not step.hidden:
            how = f"not run, {step.why}" if step.why else "run"
            print(f"{step.place}: {how}: {step.text.splitlines()[0]}", flush=True)
    if options.list:
        return True
    if not run(page, steps, options.drover.resolve(), options.keep, options.full):
        return False
    count = sum(1 for step in steps if not step.hidden and not step.why)
    print(f"{page}: {count} commands passed.", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--drover", type=Path, default=SOURCE / "build/release/drover", help="the program")
    parser.add_argument("--full", action="store_true", help="at full length, with what this machine can do")
    parser.add_argument("--not-run", type=Path, default=HERE / "not_run.txt", help="the list of exemptions")
    parser.add_argument("--keep", help="work in this folder, and keep it")
    parser.add_argument("--list", action="store_true", help="run nothing; show what would be, and what not and why")
    options = parser.parse_args()
    # What a page has started is ended then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    pages = [page.resolve() for page in options.pages] or all_pages()
    try:
        exemptions = read_exemptions(options.not_run)
    except PageError as error:
        sys.exit(error)
    wrong = 0
    if not options.pages:
        for lost in sorted({e.page for e in exemptions} - {str(page.relative_to(SOURCE)) for page in pages}):
            print(f"{options.not_run.name}: there is no page with commands of this name: {lost}")
            wrong += 1
    for path in pages:
        page = str(path.relative_to(SOURCE)) if path.is_relative_to(SOURCE) else path.name
        try:
            steps = steps_of(page, path.read_text(), exemptions, options.full, options.drover.resolve().parent)
            wrong += not take(page, steps, options)
        except PageError as error:
            print(error)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
