#!/usr/bin/env python3
"""Run onnx's backend tests on mtool.plugins.onnx_backend, one model at a time, with onnx's own runner.

    make onnx-backend                                   # all node tests of numbers
    make onnx-backend ARGS="--only reduce_ --jobs 4"

Each test is prepared and run as any backend's is, with nothing given from outside; each builds a program of its own,
so that all of them take three minutes of CPU. `tests/onnx_suite` has the same tests many in a program.
"""

import argparse
import concurrent.futures
import multiprocessing
import sys
import unittest
import warnings
from pathlib import Path

from onnx.backend.test import BackendTest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from mtool.plugins.onnx_backend import ToolBackend  # noqa: E402
from tests.onnx_suite.cases import is_narrow, node_cases  # noqa: E402
from tests.onnx_suite.expectations import NOT_PASSED  # noqa: E402

_tests: type[unittest.TestCase]


def run(name: str) -> str:
    """Return why a test fails; empty: it passes."""
    result = unittest.TestResult()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _tests(f"{name}_cpu").run(result)
    found = [text for _, text in (*result.failures, *result.errors, *result.skipped)]
    return found[0] if found else ""


def main() -> int:
    """Run the tests; the exit code is 0 if exactly the expected ones fail."""
    global _tests
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of the names of the tests to run")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _tests = BackendTest(ToolBackend, __name__).test_cases["OnnxBackendNodeModelTest"]
        cases = [case for case in node_cases() if options.only in case.name]
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        reasons = list(pool.map(run, [case.name for case in cases], chunksize=8))
    failed = {case.name: reason for case, reason in zip(cases, reasons, strict=True) if reason}
    for name, reason in failed.items():
        print(f"{name}: {NOT_PASSED.get(f'node/{name}') or reason}")
    narrow = [case for case in cases if is_narrow(case)]
    for title, group in (("of all", cases), ("of elements up to bfloat16 and int4", narrow)):
        passed = sum(case.name not in failed for case in group)
        print(f"{passed:,} of {len(group):,} pass, {title} ({100 * passed / max(len(group), 1):.2f}%)")
    written = {name.removeprefix("node/") for name in NOT_PASSED} & {case.name for case in cases}
    return int(set(failed) != written)


if __name__ == "__main__":
    sys.exit(main())
