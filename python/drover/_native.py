"""Loads the extension, which loads libdrover.so and OpenMP."""

import os


def _openmp_is_loaded() -> bool:
    with open("/proc/self/maps") as maps:
        return any("libgomp" in line for line in maps)


# OpenMP reads it when it is loaded. The command drover does the same: without it, threads that wait for each
# other take the processors from other programs.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys() and not _openmp_is_loaded():
    os.environ["GOMP_SPINCOUNT"] = "2000"

from drover import _drover as native  # noqa: E402

__all__ = ["native"]
