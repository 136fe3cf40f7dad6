"""Does run 0 end with the same bytes for any number of other runs and devices?"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import numpy as np

from benchmarks import child, machine
from benchmarks.settings import Keep, Record, Settings
from benchmarks.tables import number, show
from benchmarks.workload import RELEASED, Cell, chunks_of, make_cell, train_cell
from sbil.networks import MLP, policy_network
from sbil.training import pick

Weights = list[np.ndarray]
Result = tuple[Record, Weights]


def run(settings: Settings, keep: Keep) -> None:
    """Train run 0 in many ways, compare it with the first way, and print the comparison."""
    counts = settings.runs or ((10,) if settings.quick else (1, 7, 25, 50))
    updates = settings.updates or (50 if settings.quick else 500)
    records = _compare("cpu", _on_cpu(counts, updates))
    if settings.gpu:
        records += _compare("gpu", _here(counts, updates))
    for record in records:
        keep({"updates": updates, **record})
    _print(records, updates)


def _on_cpu(counts: tuple[int, ...], updates: int) -> list[Result]:
    """Train run 0 among each number of runs, on 1 and 2 CPU devices; and repeat the first case."""
    cases = ((1, counts), (2, counts), (1, counts[:1]))
    return [result for cpu_devices, runs in cases for result in _in_child(cpu_devices, runs, updates)]


def _in_child(cpu_devices: int, counts: tuple[int, ...], updates: int) -> list[Result]:
    results = []
    with TemporaryDirectory() as folder:
        argument = {"counts": counts, "updates": updates, "folder": folder}
        answer = child.call("benchmarks.determinism", argument, cpu_devices)
        for runs, path in zip(counts, answer["files"], strict=True):
            with np.load(path) as arrays:
                weights = [arrays[name] for name in arrays.files]
            results.append(({"runs": runs, "devices": answer["devices"]}, weights))
    return results


def _here(counts: tuple[int, ...], updates: int) -> list[Result]:
    """Do the same on the devices of this process."""
    facts = [{"runs": runs, "devices": machine.jax_device()["devices"]} for runs in (*counts, counts[0])]
    return [(fact, train_run_0(fact["runs"], updates)) for fact in facts]


def train_run_0(runs: int, updates: int) -> Weights:
    """Return the weights of run 0 after training it with the others."""
    with chunks_of(updates):
        trained = train_cell(make_cell(runs), RELEASED, updates)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(pick(trained.states.network, 0))]


def _compare(platform: str, results: list[Result]) -> list[Record]:
    """Compare every result with the first."""
    cell = make_cell(1)
    reference = _flat(results[0][1])
    expected = _logits(cell, results[0][1])
    records = []
    for facts, weights in results:
        flat, logits = _flat(weights), _logits(cell, weights)
        record = {
            "platform": platform,
            **facts,
            "equal bytes": flat.tobytes() == reference.tobytes(),
            "largest difference of weights": float(np.abs(flat - reference).max()),
            "largest difference of logits": float(np.abs(logits - expected).max()),
            "largest logit": float(np.abs(expected).max()),
            "equal greedy actions": float((logits.argmax(axis=1) == expected.argmax(axis=1)).mean()),
        }
        records.append(record)
    return records


def _flat(weights: Weights) -> np.ndarray:
    return np.concatenate([leaf.ravel() for leaf in weights])


def _logits(cell: Cell, weights: Weights) -> np.ndarray:
    """Logits at the states that run 0 was trained on."""
    structure = jax.tree.structure(policy_network(jax.random.key(0), cell.spec))
    network: MLP = jax.tree.unflatten(structure, weights)
    pool = cell.dataset.pool
    return np.asarray(network(pool.observations[pool.row[cell.dataset.labelled.indices[0]]]))


def _print(records: list[Record], updates: int) -> None:
    columns = [
        "device",
        "devices",
        "runs",
        "runs a device",
        "equal bytes",
        "largest logit difference",
        "equal actions",
    ]
    rows = [
        [
            record["platform"],
            str(record["devices"]),
            str(record["runs"]),
            str(-(-record["runs"] // record["devices"])),
            "yes" if record["equal bytes"] else "no",
            number(record["largest difference of logits"]),
            f"{record['equal greedy actions']:.1%}",
        ]
        for record in records
    ]
    caption = (
        f"Run 0 after {updates} updates against the first line of the same kind of device (the last line repeats it)."
        f" Its largest logit is {number(records[0]['largest logit'])}."
    )
    show("Do other runs in the program change a run?", columns, rows, caption)


def save_runs(counts: list[int], updates: int, folder: str) -> Record:
    """In the child: train each case and leave run 0's weights in files."""
    size = machine.jax_device()["devices"]
    files = []
    for runs in counts:
        files.append(str(Path(folder) / f"{runs}.npz"))
        np.savez(files[-1], *train_run_0(runs, updates))
    return {"devices": size, "files": files}


if __name__ == "__main__":
    print(json.dumps(save_runs(**json.loads(sys.argv[1]))))
