"""Carries out a Dockerfile without Docker, in folders made from images of the same names, and runs the result.

    dockerfile.py build CONTEXT WORK [--image NAME=FOLDER]... [--build-arg NAME=VALUE]...
    dockerfile.py run WORK [-e NAME=VALUE]... [--entrypoint WORDS] [-- WORD...]

`build` makes the last stage of CONTEXT/Dockerfile, and those that it needs, in WORK/STAGE. A NAME of FROM that is no
stage is a copy of FOLDER, such as one of debootstrap. `run` starts what the image starts, with these words. Needs root
and Linux's mount namespaces. It knows the instructions that our Dockerfile uses and refuses others.
"""

import argparse
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from dockerfile_parse import DockerfileParser

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What a container has besides its image. The network is the machine's, and so are the certificates that pip trusts
# when the image is built, for networks whose proxies have their own.
MOUNTS = """
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount --bind -o ro /etc/resolv.conf "$root/etc/resolv.conf"
touch "$root/run/certificates.crt"
mount --bind -o ro /etc/ssl/certs/ca-certificates.crt "$root/run/certificates.crt"
"""


def expand(text: str, values: dict[str, str]) -> str:
    """Replaces $NAME and ${NAME}, as the builder does outside of RUN."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: values.get(found[1] or found[2], ""), text)


class Stage:
    """An image while it is made: a folder, and what its containers start with."""

    def __init__(self, root: Path, origin: "Stage | None"):
        self.root = root
        self.environment = dict(origin.environment) if origin else {"PATH": PATH}
        self.arguments: dict[str, str] = {}
        self.directory = origin.directory if origin else "/"
        self.user = origin.user if origin else "0:0"
        self.entrypoint = list(origin.entrypoint) if origin else []

    def values(self) -> dict[str, str]:
        return {**self.arguments, **self.environment}

    def execute(self, command: list[str], environment: dict[str, str], mounts: list[tuple[Path, str]] = []) -> int:
        script = f"set -e\nroot={shlex.quote(str(self.root))}\n" + MOUNTS
        for source, target in mounts:
            script += f'mkdir -p "$root{target}"; mount --bind -o ro {shlex.quote(str(source))} "$root{target}"\n'
        inside = f"cd {shlex.quote(self.directory)} && exec " + shlex.join(command)
        words = ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]
        words += ["chroot", f"--userspec={self.user}", str(self.root), "/bin/sh", "-c", inside]
        script += "exec " + shlex.join(words)
        shared = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", script]
        return subprocess.run(shared).returncode

    def home(self) -> str:
        for line in (self.root / "etc/passwd").read_text().splitlines():
            fields = line.split(":")
            if fields[2] == self.user.split(":")[0]:
                return fields[5]
        return "/"


class Build:
    def __init__(self, context: Path, work: Path, images: dict[str, str], given: dict[str, str]):
        self.context, self.work, self.images, self.given = context, work, images, given
        self.stages: dict[str, Stage] = {}
        self.ignored = [line.strip() for line in (context / ".dockerignore").read_text().splitlines() if line.strip()]
        # Instructions of each stage, and the arguments before the first one.
        self.recipes: dict[str, list[dict]] = {}
        self.origins: dict[str, str] = {}
        self.outer: dict[str, str] = {}
        last = ""
        # The library reads a path of a folder as that of its Dockerfile.
        for step in DockerfileParser(str(context)).structure:
            name, value = step["instruction"], step["value"]
            if name == "COMMENT":
                continue
            if name == "ARG" and not self.recipes:
                key, _, default = value.partition("=")
                self.outer[key] = given.get(key, default.strip('"'))
            elif name == "FROM":
                origin, _, alias = value.partition(" AS ")
                last = alias or "final"
                self.origins[last] = expand(origin, self.outer)
                self.recipes[last] = []
            else:
                self.recipes[last].append(step)
        self.last = last

    def stage(self, name: str) -> Stage:
        if name in self.stages:
            return self.stages[name]
        origin_name = self.origins[name]
        origin = self.stage(origin_name) if origin_name in self.recipes else None
        if origin is None and origin_name not in self.images:
            sys.exit(f"dockerfile: FROM {origin_name}: no --image has this name.")
        stage = Stage(self.work / name, origin)
        subprocess.run(["cp", "-a", "--reflink=auto", origin.root if origin else self.images[origin_name], stage.root], check=True)
        self.stages[name] = stage
        for step in self.recipes[name]:
            print(f"{name}: {step['instruction']} {step['value'][:100]}", flush=True)
            instruction = getattr(self, "do_" + step["instruction"].lower(), None)
            if instruction is None:
                sys.exit(f"dockerfile: this script does not know {step['instruction']}.")
            instruction(stage, step["value"])
        return stage

    def do_arg(self, stage: Stage, value: str) -> None:
        name, _, default = value.partition("=")
        stage.arguments[name] = self.given.get(name, expand("".join(shlex.split(default)), stage.values()))

    def do_env(self, stage: Stage, value: str) -> None:
        for word in shlex.split(value):
            name, _, text = word.partition("=")
            stage.environment[name] = expand(text, stage.values())

    def do_workdir(self, stage: Stage, value: str) -> None:
        stage.directory = os.path.join(stage.directory, expand(value, stage.values()))
        (stage.root / stage.directory.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def do_user(self, stage: Stage, value: str) -> None:
        stage.user = expand(value, stage.values())

    def do_entrypoint(self, stage: Stage, value: str) -> None:
        stage.entrypoint = json.loads(value)

    def do_run(self, stage: Stage, value: str) -> None:
        mounts = []
        while found := re.match(r"--mount=(\S+)\s+", value):
            options = dict(option.split("=", 1) for option in found[1].split(","))
            source = self.stage(options["from"]).root / options["source"].lstrip("/")
            mounts.append((source, options["target"]))
            value = value[found.end() :]
        environment = {"HOME": "/root", "PIP_CERT": "/run/certificates.crt", **stage.values()}
        if stage.execute(["/bin/sh", "-c", value], environment, mounts) != 0:
            sys.exit(f"dockerfile: this failed: RUN {value}")

    def do_copy(self, stage: Stage, value: str) -> None:
        words = shlex.split(value)
        options = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
        words = [expand(word, stage.values()) for word in words if not word.startswith("--")]
        if set(options) - {"chmod"}:
            sys.exit(f"dockerfile: this script does not know COPY's {options}.")
        target = stage.root / os.path.join(stage.directory, words[-1]).lstrip("/")
        into = words[-1].endswith("/") or len(words) > 2 or target.is_dir()
        for word in words[:-1]:
            source = self.context / word
            place = target / source.name if into and not source.is_dir() else target
            place.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True, ignore=self.leaves_out)
            elif self.leaves_out(str(source.parent), [source.name]):
                sys.exit(f"dockerfile: COPY {word}: .dockerignore leaves it out.")
            else:
                shutil.copy2(source, place)
                if "chmod" in options:
                    place.chmod(int(options["chmod"], 8))

    def leaves_out(self, folder: str, names: list[str]) -> list[str]:
        below = Path(folder).relative_to(self.context)
        places = {name: str(below / name) for name in names}
        return [
            name
            for name, place in places.items()
            for pattern in self.ignored
            if fnmatch.fnmatch(place, pattern) or pattern.startswith("**/") and fnmatch.fnmatch(name, pattern[3:])
        ]


def build(options: argparse.Namespace) -> None:
    pairs = [dict(word.split("=", 1) for word in words) for words in (options.image, options.build_arg)]
    work = Path(options.work).resolve()
    made = Build(Path(options.context).resolve(), work, *pairs)
    stage = made.stage(made.last)
    kept = {name: value for name, value in vars(stage).items() if name != "root"}
    (work / "image.json").write_text(json.dumps({"root": str(stage.root), **kept}))


def run(options: argparse.Namespace) -> None:
    image = json.loads((Path(options.work) / "image.json").read_text())
    stage = Stage(Path(image.pop("root")), None)
    vars(stage).update(image)
    environment = {"HOME": stage.home(), **stage.environment, **dict(word.split("=", 1) for word in options.environment)}
    entrypoint = shlex.split(options.entrypoint) if options.entrypoint else stage.entrypoint
    sys.exit(stage.execute([*entrypoint, *options.words], environment))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("build")
    command.set_defaults(function=build)
    command.add_argument("context")
    command.add_argument("work")
    command.add_argument("--image", action="append", default=[], metavar="NAME=FOLDER")
    command.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    command = commands.add_parser("run")
    command.set_defaults(function=run)
    command.add_argument("work")
    command.add_argument("-e", dest="environment", action="append", default=[], metavar="NAME=VALUE")
    command.add_argument("--entrypoint")
    # Words after "--" are the container's; argparse would look for options in them.
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:end])
    options.words = words[end + 1 :]
    options.function(options)


if __name__ == "__main__":
    main()
