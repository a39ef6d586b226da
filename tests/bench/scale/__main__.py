"""Measure the costs of an ingest, compare the simulation with a real ingest, and simulate large ones.

python -m tests.bench.scale [measure [TRACE …] | validate | simulate]
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from tests.bench.scale.measuring import measured_costs
from tests.bench.scale.parameters import MEASURED, Assumptions, Costs
from tests.bench.scale.report import growth, shares
from tests.bench.scale.validating import validate

RANKS, WORKERS = (64, 1024, 10_000), (16, 32, 64, 128, 256, 512, 1024, 2048)


def main() -> None:
    """Run the command that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command")
    measure = commands.add_parser("measure", help="measure the costs, and write them into measured.json")
    measure.add_argument("traces", nargs="*", type=Path, help="further traces, whose costs are printed, too")
    commands.add_parser("validate", help="compare the simulation with real ingests")
    simulation = commands.add_parser("simulate", help="simulate large ingests (default)")
    for each in (parser, simulation):
        _add_options(each)
    options = parser.parse_args()
    if options.command == "measure":
        _measure(options.traces)
    elif options.command == "validate":
        with tempfile.TemporaryDirectory() as folder:
            validate(Path(folder), Costs.measured(), _say)
    else:
        _simulate(options.ranks, options.workers, options.gigabytes, _assumptions(options))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", nargs="+", type=int, default=RANKS)
    parser.add_argument("--workers", nargs="+", type=int, default=WORKERS)
    parser.add_argument("--gigabytes", type=float, default=2.7, help="size of the JSON of a trace")
    for field in fields(Assumptions):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)


def _assumptions(options: argparse.Namespace) -> Assumptions:
    return Assumptions(**{field.name: getattr(options, field.name) for field in fields(Assumptions)})


def _measure(traces: Sequence[Path]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        MEASURED.write_bytes(measured_costs(Path(folder), traces, _say).as_json())


def _simulate(ranks: Sequence[int], workers: Sequence[int], gigabytes: float, assumptions: Assumptions) -> None:
    costs = Costs.measured()
    for count in ranks:
        _say(growth(count, workers, gigabytes, costs, assumptions))
    _say(shares(gigabytes, costs))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
