"""Saved machine code is read without what compiles, and compiled callers can use it."""

import subprocess
import sys

SETUP = """
import sys
import numba
import numpy as np
from service.attribution.nesting import _sum_subtrees as sum_subtrees

def summed(function):
    sums = np.array([1, 2, 3])
    function(np.array([-1, 0, 1], np.int32), sums)
    return sums.tolist()

assert summed(sum_subtrees) == [6, 5, 3]
compiler = {"numba.np.npyimpl", "numba.np.linalg"}
"""
SAVE = SETUP
READ = f"{SETUP}assert not compiler & sys.modules.keys()\n"
COMPILE = f"""{READ}
@numba.njit(_nrt=False)
def caller(parents, sums):
    sum_subtrees(parents, sums)

assert summed(caller) == [6, 5, 3]
assert compiler < sys.modules.keys()
"""


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


def test_saved_machine_code_is_read_without_what_compiles() -> None:
    run(SAVE)
    run(READ)


def test_a_caller_of_saved_machine_code_compiles() -> None:
    run(SAVE)
    run(COMPILE)
