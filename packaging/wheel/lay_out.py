"""Puts an installed tree into the layout of a wheel, without the libraries that auditwheel adds.

    lay_out.py TREE FOLDER VERSION DESCRIPTION

TREE is what `cmake --install` made of the components program and python. In FOLDER appear

    drover/                 the module, as Python users import it
    drover/bin/drover       the program, and drover/share, which it reads
    drover/lib/             libdrover.so.0; in lib/drover the modules that program and library load
    NAME-VERSION.data       the command drover
    NAME-VERSION.dist-info  without RECORD
"""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

NAME = "drover_trainer"
HERE = Path(__file__).parent
# Packages of Debian whose libraries auditwheel leaves to the system.
MACHINES_OWN = {"libc6", "libgcc-s1", "libstdc++6"}

# Shared libraries of other packages of PyPI: where they are in them, beside our package, and which package of which
# version has them. "{major}" is the library's own.
LIBRARIES_OF_PACKAGES = {
    "libarrow.so": ("parquet", "pyarrow", "pyarrow=={arrow}.*"),
    "libnccl.so": ("cuda", "nvidia/nccl/lib", "nvidia-nccl-cu{cuda}>=2,<3"),
    "libcudnn.so": ("cuda", "nvidia/cudnn/lib", "nvidia-cudnn-cu{cuda}>={major},<{next}"),
}
CUDA_13 = {
    "libcudart.so": ("cuda", "nvidia/cu{cuda}/lib", "nvidia-cuda-runtime>={major},<{next}"),
    "libcublasLt.so": ("cuda", "nvidia/cu{cuda}/lib", "nvidia-cublas>={major},<{next}"),
    "libnvrtc.so": ("cuda", "nvidia/cu{cuda}/lib", "nvidia-cuda-nvrtc>={major},<{next}"),
}
CUDA_12 = {
    "libcudart.so": ("cuda", "nvidia/cuda_runtime/lib", "nvidia-cuda-runtime-cu12"),
    "libcublasLt.so": ("cuda", "nvidia/cublas/lib", "nvidia-cublas-cu12"),
    "libnvrtc.so": ("cuda", "nvidia/cuda_nvrtc/lib", "nvidia-cuda-nvrtc-cu12"),
}


def needed(file: Path) -> list[tuple[str, int]]:
    """The libraries that a file is linked with, as name and number: ("libcudart.so", 13)."""
    printed = subprocess.run(["patchelf", "--print-needed", file], stdout=subprocess.PIPE, text=True, check=True)
    found = (line.partition(".so.") for line in printed.stdout.splitlines())
    return [(name + ".so", int(number.split(".")[0])) for name, dot, number in found if dot and number[0].isdigit()]


def link_with_packages(modules: Path) -> dict[str, set[str]]:
    """Lets the modules look for libraries in the packages that have them. Returns what these packages are, by the
    name of the extra that asks for them."""
    numbers = dict(library for module in modules.glob("*.so") for library in needed(module))
    cuda = numbers.get("libcudart.so", 0)
    # The number of Arrow's libraries is its version times 100.
    values = {"cuda": cuda, "arrow": numbers.get("libarrow.so", 0) // 100}
    known = {**LIBRARIES_OF_PACKAGES, **(CUDA_12 if cuda == 12 else CUDA_13)}
    extras: dict[str, set[str]] = {}
    for module in modules.glob("*.so"):
        folders = []
        for library, major in needed(module):
            if library not in known:
                continue
            extra, folder, package = known[library]
            folders.append("$ORIGIN/../../../" + folder.format(**values))
            extras.setdefault(extra, set()).add(package.format(major=major, next=major + 1, **values))
        if folders:
            path = ":".join(dict.fromkeys(folders))
            subprocess.run(["patchelf", "--force-rpath", "--set-rpath", path, module], check=True)
    return extras


def copy_licenses(tree: Path, folder: Path) -> list[str]:
    """Our own licence, and those that Debian has of the libraries that auditwheel will add. Returns their names."""
    folder.mkdir(parents=True)
    for name in ("LICENSE", "NOTICE"):
        shutil.copy2(tree / "share/doc/drover" / name, folder)
    listed = subprocess.run(["ldd", tree / "bin/drover"], stdout=subprocess.PIPE, text=True, check=True).stdout
    files = {words[2] for words in map(str.split, listed.splitlines()) if words[1:2] == ["=>"] and words[2][0] == "/"}
    for file in files | {str(Path(file).resolve()) for file in files}:
        owner = subprocess.run(["dpkg-query", "-S", file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        package = owner.stdout.split(":")[0]
        text = Path("/usr/share/doc", package, "copyright")
        if package and package not in MACHINES_OWN and text.exists():
            shutil.copy(text, folder / f"{package}.txt")
    return sorted(file.name for file in folder.iterdir())


def write_information(folder: Path, version: str, description: Path, extras: dict[str, set[str]], licenses: list[str]) -> None:
    metadata = f"""Metadata-Version: 2.4
Name: {NAME.replace("_", "-")}
Version: {version}
Summary: Trains language models from run_clm.py command lines, natively: the module and the command drover
License-Expression: Apache-2.0
Requires-Python: >=3.11
Description-Content-Type: text/markdown
"""
    metadata += "".join(f"License-File: {name}\n" for name in licenses)
    for extra, packages in sorted(extras.items()):
        metadata += f"Provides-Extra: {extra}\n"
        metadata += "".join(f"Requires-Dist: {package}; extra == '{extra}'\n" for package in sorted(packages))
    (folder / "METADATA").write_text(metadata + "\n" + description.read_text())
    # auditwheel replaces the tag by that of the systems that the wheel runs on.
    machine = platform.machine()
    (folder / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: drover\nRoot-Is-Purelib: false\nTag: cp311-abi3-linux_{machine}\n"
    )


def main() -> None:
    tree, folder, version, description = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    package = folder / "drover"
    shutil.copytree(tree / "lib/drover/python/drover", package)
    (package / "bin").mkdir()
    shutil.copy2(tree / "bin/drover", package / "bin")
    modules = package / "lib/drover"
    modules.mkdir(parents=True)
    # As a file: wheels have no links.
    shutil.copy2(tree / "lib/libdrover.so.0", package / "lib/libdrover.so.0", follow_symlinks=True)
    for module in (tree / "lib/drover").glob("drover_*.so"):
        shutil.copy2(module, modules)
    shutil.copytree(tree / "share/drover/configs", package / "share/drover/configs")

    extras = link_with_packages(modules)
    subprocess.run(["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/lib", package / "_drover.abi3.so"], check=True)
    information = folder / f"{NAME}-{version}.dist-info"
    licenses = copy_licenses(tree, information / "licenses")
    write_information(information, version, description, extras, licenses)
    scripts = folder / f"{NAME}-{version}.data/scripts"
    scripts.mkdir(parents=True)
    shutil.copy2(HERE / "drover", scripts)


if __name__ == "__main__":
    main()
