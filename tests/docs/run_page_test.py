"""What run_page.py accepts and refuses, with pages made here. Needs no build: `python3 -m unittest run_page_test`."""
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


class RunPage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/var/tmp")  # of commands, /tmp is another
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def words(self, page, *flags, not_run=""):
        (self.folder / "page.md").write_text(page)
        (self.folder / "not_run.txt").write_text(not_run)
        return [sys.executable, HERE / "run_page.py", "--drover", sys.executable, "--not-run", self.folder / "not_run.txt",
                *flags, self.folder / "page.md"]

    def run_page(self, *arguments, **more):
        return subprocess.run(self.words(*arguments, **more), capture_output=True, text=True, check=False)

    def expect_passed(self, *arguments, **more):
        done = self.run_page(*arguments, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def expect_failed(self, message, *arguments, **more):
        done = self.run_page(*arguments, **more)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(message, done.stdout + done.stderr)
        return done.stdout

    def block(self, *lines):
        return "```sh\n" + "\n".join(lines) + "\n```\n"

    def made(self, name):
        """A file that a command can leave behind."""
        return self.folder / name

    def test_commands_of_all_blocks_run_in_one_shell_and_in_order(self):
        page = self.block("export A=1", "mkdir there && cd there") + "text\n" + self.block(f'echo "$A $(basename $PWD)" > {self.made("x")}')
        self.assertIn("3 commands passed", self.expect_passed(page))
        self.assertEqual(self.made("x").read_text(), "1 there\n")

    def test_other_blocks_are_no_commands(self):
        self.assertIn("0 commands", self.expect_passed("```\nfalse\n```\n```text\nfalse\n<!-- test: false -->\n```\n"))

    def test_the_first_failure_ends_the_page_and_is_named(self):
        output = self.expect_failed("page.md:3", self.block("echo fine", "sh -c 'echo why >&2; exit 7'", f"touch {self.made('later')}"))
        self.assertIn("why", output)
        self.assertIn("exit status 7", output)
        self.assertFalse(self.made("later").exists())

    def test_failures_are_seen_wherever_they_are(self):
        for command in ("false && true", "false | cat", "(exit 3)", "no_such_program", "if then", 'echo "open', "set -e\nfalse",
                        "exit 0", "cat <<'END'\nnever ended"):
            self.expect_failed("the last command above failed", self.block(command, "true"))

    def test_a_command_may_have_many_lines(self):
        page = self.block("# only a comment", "printf '%s' \\", f"  a > {self.made('x')}", f"cat > {self.made('y')} <<'END'", "line", "", "END",
                          "for i in 1 2; do", f"  echo $i >> {self.made('y')}", "done")
        self.assertIn("3 commands passed", self.expect_passed(page))
        self.assertEqual(self.made("x").read_text(), "a")
        self.assertEqual(self.made("y").read_text(), "line\n\n1\n2\n")

    def test_comments_prepare_and_check(self):
        page = "<!-- test:\nname=moon\n-->\n" + self.block("echo hello $name") + "<!-- test: says 'hello moon' -->\n"
        self.assertIn("1 commands passed", self.expect_passed(page))
        self.expect_failed("did not print: hello sun", page.replace("says 'hello moon'", "says 'hello sun'"))
        self.expect_failed("did not write none", "<!-- test: wrote none; true -->\n")
        self.expect_failed("page.md:2", "<!-- test:\n[ 1 = 2 ]\ntrue\n-->\n")

    def test_says_looks_at_the_last_command_alone(self):
        self.expect_failed("did not print: one", self.block("echo one", "echo two") + "<!-- test: says one -->\n")

    def test_replacements(self):
        page = f"<!-- test with:\n… => of cheese\n^say => echo\n-->\n" + self.block(f"say a piece … > {self.made('x')}")
        self.expect_passed(page)
        self.assertEqual(self.made("x").read_text(), "a piece of cheese\n")

    def test_quick_replacements_are_not_made_at_full_length(self):
        page = "<!-- quick test with: 300 => 3 -->\n" + self.block(f"echo 300 > {self.made('x')}")
        self.expect_passed(page)
        self.assertEqual(self.made("x").read_text(), "3\n")
        self.expect_passed(page, "--full")
        self.assertEqual(self.made("x").read_text(), "300\n")

    def test_dots_without_a_meaning_are_refused(self):
        self.expect_failed("what stands for …", self.block("echo a …"))
        self.expect_passed(self.block("echo file-….txt  # writes file-….txt"))

    def test_what_no_command_has_is_refused(self):
        self.expect_failed("no command of page.md has this: blue", "<!-- test with: blue => red -->\n" + self.block("echo green"))
        self.expect_failed("no command of page.md has this: rm", self.block("echo"), not_run="page.md | rm | never | dangerous\n")

    def test_exemptions(self):
        page = self.block(f"touch {self.made('x')}", "echo")
        self.assertIn("not run, never: costs money", self.expect_passed(page, not_run="page.md | touch | never | costs money\n"))
        self.assertFalse(self.made("x").exists())
        self.expect_passed(page, not_run="page.md | touch | full | minutes\n")
        self.assertFalse(self.made("x").exists())
        self.expect_passed(page, not_run="page.md | touch | if false | needs luck\n")
        self.assertFalse(self.made("x").exists())
        self.expect_passed(page, "--full", not_run="page.md | touch | full | minutes\n")
        self.assertTrue(self.made("x").exists())
        self.made("x").unlink()
        self.expect_passed(page, not_run="page.md | touch | if true | needs nothing\n")
        self.assertTrue(self.made("x").exists())

    def test_an_exemption_needs_a_reason(self):
        for line in ("page.md | touch | never", "page.md | touch | sometimes | because", "page.md | touch | never | "):
            self.expect_failed("not_run.txt:1: expected", self.block("touch x"), not_run=line + "\n")

    def test_pages_have_homes_and_temporary_files_of_their_own(self):
        page = self.block("[ -z \"$(ls -A ~)\" ]", "touch ~/file /tmp/drover-docs-test-file", f"echo ~ > {self.made('x')}", "ls examples build/release")
        self.expect_passed(page)
        self.assertFalse(Path("/tmp/drover-docs-test-file").exists())
        self.assertFalse(Path(self.made("x").read_text().strip()).exists())

    def test_nothing_is_left_when_it_is_ended_by_a_signal(self):
        with subprocess.Popen(self.words(self.block(f"echo $$ ~ > {self.made('x')}; sleep 600")), stdout=subprocess.DEVNULL) as running:
            while not (self.made("x").exists() and self.made("x").read_text().endswith("\n")):
                time.sleep(0.05)
            running.terminate()
            self.assertEqual(running.wait(30), 143)
        shell, home = self.made("x").read_text().split()
        self.assertFalse(Path("/proc", shell).exists())
        self.assertFalse(Path(home).exists())


if __name__ == "__main__":
    unittest.main()
