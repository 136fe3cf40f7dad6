"""The commands as people use them: real files, real processes."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from probes import refusal
from sbil import demonstrations
from sbil.cli import ORDER, commands, main
from sbil.demonstrations import Demonstrations, Trajectory

PARTS = {"demos": ("collect", "import", "export", "list"), "clinical": ("mimic3", "physionet2012")}  # with subcommands
COMMANDS = [f"{name} {part}".strip() for name in commands() for part in PARTS.get(name, ("",))]


def sbil(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "sbil", *words)


def start(*words: str, **options) -> subprocess.Popen:
    return subprocess.Popen(sbil(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finish(*words: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(sbil(*words), capture_output=True, text=True, check=False, timeout=300, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def demos(folder):
    path = folder / "demos.npz"
    main(["demos", "collect", "--env", "CartPole-v1", "--trajectories", "4", "--out", str(path)])
    return path


@pytest.fixture(scope="module")
def policy(folder, demos):
    path = folder / "policy"
    main(["train", "bc", "--data", str(demos), "--out", str(path), "--updates", "300", "--held-out", "0.25"])
    return path


# What works


def test_collect_train_evaluate(demos, policy, capsys):
    loaded = demonstrations.read(demos)
    assert len(loaded) == 4
    assert loaded.provenance["mode"] == "sampled"
    names = ["README.md", "metrics.csv", "policy.json", "weights.safetensors"]
    assert sorted(path.name for path in policy.iterdir()) == names
    assert (policy / "metrics.csv").read_text().splitlines()[0] == "update,policy_loss"
    main(["evaluate", str(policy), "--env", "CartPole-v1", "--episodes", "20", "--json"])
    live = json.loads(capsys.readouterr().out)
    assert live["episodes"] == 20
    assert live["low"] <= live["mean"] <= live["high"]
    main(["evaluate", str(policy), "--data", str(demos), "--json"])
    agreed = json.loads(capsys.readouterr().out)
    assert agreed["steps"] == loaded.steps
    assert agreed["accuracy"] > agreed["majority_accuracy"]


def test_collect_says_what_return_its_demonstrations_have(demos, folder, capsys):
    """In CartPole every step is worth 1."""
    words = ["demos", "collect", "--env", "CartPole-v1", "--trajectories", "4", "--out", str(folder / "told.npz")]
    main(words)
    lengths = demonstrations.read(demos).lengths
    told = f"mean return {lengths.mean():.2f} (min {lengths.min()}, max {lengths.max()})"
    assert told in capsys.readouterr().out
    main([*words, "--overwrite", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["mean_return"] == lengths.mean()
    assert (found["min_return"], found["max_return"]) == (lengths.min(), lengths.max())
    assert (folder / "told.npz").read_bytes() == demos.read_bytes()


def test_the_same_command_writes_the_same_bytes(demos, policy, folder):
    other = folder / "again"
    main(["train", "bc", "--data", str(demos), "--out", str(other), "--updates", "300", "--held-out", "0.25"])
    for name in ("policy.json", "weights.safetensors", "metrics.csv"):
        assert (policy / name).read_bytes() == (other / name).read_bytes()


def test_settings_and_presets_reach_the_policy(demos, folder):
    out = folder / "tuned"
    words = ["--preset", "released", "--set", "chain_length=2", "buffer_size=64", "--updates", "20", "--thin", "20"]
    main(["train", "edm", "--data", str(demos), "--out", str(out), *words])
    provenance = json.loads((out / "policy.json").read_text())["provenance"]
    assert provenance["settings"]["chain_length"] == 2
    assert provenance["settings"]["batch"] == 32
    assert provenance["data"]["steps_used"] == 100
    assert provenance["device"]["runs_per_program"] == 1


def test_quickstart_with_a_tiny_budget(folder, capsys):
    out = folder / "quick"
    words = ["quickstart", "--out", str(out), "--runs", "2", "--updates", "10", "--episodes", "2"]
    main([*words, "--json"])
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [(cell["method"], cell["size"]) for cell in cells] == [(m, n) for m in ("bc", "edm") for n in (1, 3, 7)]
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "| edm |" in (out / "table.md").read_text()
    main(words)
    text = capsys.readouterr().out
    assert "next:" in text
    assert "too few draws" in text


def test_one_run_has_no_interval_and_json_stays_json(folder, capsys):
    words = ["reproduce", "--env", "CartPole-v1", "--algorithms", "bc", "--sizes", "1", "--draws", "1", "--seeds", "1"]
    main([*words, "--updates", "5", "--episodes", "2", "--out", str(folder / "single"), "--json"])
    text = capsys.readouterr().out
    assert "NaN" not in text
    assert json.loads(text)["cells"][0]["low"] is None


def test_reproduce_writes_results_tables_figures_and_the_page(folder, capsys):
    out = folder / "grid"
    words = ["reproduce", "--env", "Acrobot-v1", "--algorithms", "bc,bc+weight_decay=3", "--sizes", "1"]
    words += ["--draws", "2", "--seeds", "1", "--updates", "10", "--episodes", "2", "--out", str(out)]
    main(words)
    assert "bc+weight_decay=3 - bc at n=1" in capsys.readouterr().out
    assert len(list(out.glob("*.parquet"))) == 2
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    written = {path.name for path in (out / "report").iterdir()}
    assert {"tables.md", "tables.tex", "cells.csv", "runs.csv", "return_against_size.svg", "profile.pdf"} <= written
    assert len((out / "report" / "runs.csv").read_text().splitlines()) == 5


def test_unlabelled_states_have_their_figure_and_no_table(folder, capsys):
    out = folder / "states"
    words = ["reproduce", "--env", "CartPole-v1", "--algorithms", "edm+chain_length=1", "--unlabelled", "1,2"]
    main([*words, "--draws", "2", "--seeds", "1", "--updates", "10", "--episodes", "2", "--out", str(out)])
    assert (out / "report" / "semi_supervised.png").exists()
    assert "+2 unlabelled" in capsys.readouterr().err


def test_several_demonstrators_and_a_choice_of_settings(folder, capsys):
    out = folder / "several"
    words = [
        "reproduce",
        "--env",
        "CartPole-v1",
        "--algorithms",
        "bc,bc+weight_decay=0/9",
        "--sizes",
        "3",
        "--thin",
        "20",
    ]
    words += ["--demonstrators", "ppo:greedy,dqn:greedy", "--draws", "2", "--seeds", "1", "--updates", "10"]
    main([*words, "--episodes", "2", "--out", str(out)])
    text = capsys.readouterr().out
    assert "CartPole-v1, ppo demonstrator (greedy), every 20th step" in " ".join(text.split())
    runs = list(csv.DictReader((out / "report" / "runs.csv").read_text().splitlines()))
    assert len(runs) == 8
    for run in runs:
        assert (run["chosen"] in ("weight_decay=0", "weight_decay=9")) == (run["method"] == "bc+weight_decay=0/9")


def test_train_chooses_settings_and_says_which(demos, folder, capsys):
    words = ["train", "bc", "--data", str(demos), "--updates", "30", "--thin", "20", "--set", "weight_decay=0/9"]
    main([*words, "--out", str(folder / "chosen")])
    text = capsys.readouterr().out
    assert "chose weight_decay=" in text
    assert "weight_decay=9:" in text
    assert "none" not in text
    main([*words, "--out", str(folder / "chosen again"), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert f"chose {answer['selection']['chosen']} " in text
    provenance = json.loads((folder / "chosen" / "policy.json").read_text())["provenance"]
    assert provenance["selection"] == answer["selection"]
    weights = [(folder / name / "weights.safetensors").read_bytes() for name in ("chosen", "chosen again")]
    assert weights[0] == weights[1]


def test_a_preset_brings_its_budget(demos, folder, capsys):
    main(["train", "majority", "--data", str(demos), "--out", str(folder / "majority")])
    assert "(majority, 1 update," in capsys.readouterr().out
    policy = json.loads((folder / "majority" / "policy.json").read_text())
    assert policy["provenance"]["updates"] == 1


def test_data_that_an_algorithm_cannot_use(capsys, folder):
    """Pairs and single steps are refused where the next state is needed."""
    states = np.zeros((1, 4), np.float32)
    pairs = tuple(Trajectory(states + i, np.array([i % 2], np.int32)) for i in range(3))
    steps = tuple(Trajectory(np.zeros((2, 4), np.float32) + i, np.array([i % 2], np.int32)) for i in range(3))
    for name, trajectories in (("pairs", pairs), ("steps", steps)):
        demonstrations.save(Demonstrations(trajectories, ("left", "right")), folder / f"{name}.npz")

    def refused(algorithm, name) -> str:
        out = folder / "never"
        words = ("train", algorithm, "--data", folder / f"{name}.npz", "--out", out, "--updates", "1")
        message = refusal(capsys, *words)
        assert not out.exists()
        return message

    for algorithm in ("rcal", "tril", "value_dice", "value_dice_exact", "dsfn"):
        assert f"{algorithm} needs triples" in refused(algorithm, "pairs")
    assert "dsfn needs trajectories" in refused("dsfn", "steps")
    main(["train", "rcal", "--data", str(folder / "steps.npz"), "--out", str(folder / "enough"), "--updates", "1"])


def test_algorithms_and_info(capsys):
    main(["algorithms"])
    text = capsys.readouterr().out
    assert "edm: needs pairs, and uses states without decisions; Jarrett" in text
    assert "rcal: needs triples; Piot" in text
    assert "dsfn: needs trajectories; Lee" in text
    assert "long (500,000 updates)" in text
    assert "coefficient=0.01, discount=0.99, norm=l1" in text
    main(["algorithms", "edm"])
    assert "chain_length" in capsys.readouterr().out
    main(["algorithms", "--json"])
    assert json.loads(capsys.readouterr().out)["edm"]["presets"]["paper"] == {"square": 0.0}
    main(["info", "--json"])
    assert json.loads(capsys.readouterr().out)["platform"] == "cpu"
    main(["demos", "list"])
    assert "Acrobot-v1" in (text := capsys.readouterr().out)
    main(["demos", "list", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(text.splitlines())
    first = {"environment": "CartPole-v1", "demonstrator": "dqn", "mode": "greedy", "mean": 500.0}
    assert first.items() <= rows[0].items()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_parse(command, capsys):
    from importlib import import_module

    from sbil.cli import parse

    with pytest.raises(SystemExit) as leaving:
        main([*command.split(), "--help"])
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    assert re.search(r"--json +Print the .* as JSON", text)
    module = import_module(f"sbil.cli.{command.split()[0]}")
    assert len(module.EXAMPLES) >= 2
    for example in module.EXAMPLES:
        assert example in text
        words = example.split()
        assert words[:2] == ["sbil", command.split()[0]]
        parse(module.Command, "sbil", words[2:], ())


def test_the_help_lists_every_command_in_order(capsys):
    main(["--help"])
    listed = capsys.readouterr().out.split("commands:")[1].split("examples:")[0]
    shown = [line.split()[0] for line in listed.splitlines() if line]
    assert shown == list(commands())
    assert shown[: len(ORDER)] == list(ORDER)  # none is lost by a change of its docstring
    assert {"scores", "progress", "columns"}.isdisjoint(shown)


def test_help_comes_without_jax():
    script = "import sys; from sbil.cli import main\ntry: main(sys.argv[1:])\nfinally: print('jax' in sys.modules)"
    for words in (["--help"], ["train", "--help"], ["quickstart", "--help"], ["reproduce", "--help"]):
        done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip().endswith("False")


# What is refused, in one line


def npz(folder, name, **changes):
    """A valid file of demonstrations with some arrays exchanged."""
    rng = np.random.default_rng(0)
    steps = tuple(Trajectory(rng.normal(size=(6, 4)).astype(np.float32), rng.integers(0, 2, 5)) for _ in range(3))
    path = folder / name
    demonstrations.save(Demonstrations(steps, ("left", "right")), path)
    if changes:
        with np.load(path) as archive:
            arrays = dict(archive)
        arrays.update(changes)
        np.savez(path, **arrays)
    return path


def test_bad_words(capsys, folder):
    assert "did you mean 'train'" in refusal(capsys, "trian")
    assert "--updatess" in refusal(capsys, "quickstart", "--updatess", "3")
    assert "--updates must be a whole number. Got 'many'." in refusal(capsys, "quickstart", "--updates", "many")
    assert "--data" in refusal(capsys, "train", "bc", "--out", folder / "x")
    assert "one of them" in refusal(capsys, "evaluate", folder)
    assert "collect" in refusal(capsys, "demos")
    line = refusal(capsys, "compare", "edm")
    assert line.startswith(
        "sbil: 'edm' belongs to no option; each value follows its option, as in: sbil compare --data"
    )
    assert "--algorithms edm" in line


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("--updates", "1e3", "--updates must be a whole number. Got '1e3'."),
        ("--updates", "it's", '--updates must be a whole number. Got "it\'s".'),
        ("--updates", "", "--updates must be a whole number. Got ''."),
        ("--seed", "1.5", "--seed must be a whole number. Got '1.5'."),
        ("--held-out", "a: 'b'", "--held-out must be a number. Got \"a: 'b'\"."),
        ("--missing", "guess", "--missing must be one of drop, indicator, last, mean, refuse. Got 'guess'."),
    ],
)
def test_values_of_another_kind_are_refused_in_plain_words(capsys, option, value, line):
    said = refusal(capsys, "train", "bc", "--data", "x.csv", "--out", "never", option, value)
    assert said == f"sbil: {line} (see sbil train --help)\n"  # no box of tyro, in hyphens or in lines


def test_a_complaint_on_a_terminal(folder):
    done = finish("quickstart", "--updates", "many", env={**os.environ, "PYTHONIOENCODING": "utf-8"}, cwd=folder)
    assert done.returncode == 2
    assert done.stderr == "sbil: --updates must be a whole number. Got 'many'. (see sbil quickstart --help)\n"


def test_options_without_effect_are_refused(capsys, policy, demos):
    for words in (("--episodes", "3"), ("--sampled",), ("--seed", "1"), ("--seed", "0")):
        assert f"{words[0]} has no effect with --data" in refusal(capsys, "evaluate", policy, "--data", demos, *words)
    play = ("evaluate", policy, "--env", "CartPole-v1")
    for words in (("--training", demos), ("--another", demos), ("--action", "x"), ("--exclude", demos), ("--imagine",)):
        assert f"{words[0]} has no effect with --env" in refusal(capsys, *play, *words)
    assert "episodes must be a whole number from 1. Got -3." in refusal(capsys, *play, "--episodes", "-3")
    assert "seed must be a whole number from 0. Got -1." in refusal(capsys, *play, "--seed", "-1")


def test_bad_names(capsys, folder, demos, policy):
    out = folder / "never"
    assert "did you mean 'edm'" in refusal(capsys, "train", "emd", "--data", demos, "--out", out)
    assert "preset" in refusal(capsys, "train", "edm", "--preset", "papr", "--data", demos, "--out", out)
    assert "did you mean 'noise'" in refusal(capsys, "train", "edm", "--set", "noize=1", "--data", demos, "--out", out)
    assert "name=value" in refusal(capsys, "train", "edm", "--set", "noise", "--data", demos, "--out", out)
    assert "'noise' parameter of EDM" in refusal(
        capsys, "train", "edm", "--set", "noise=-1", "--data", demos, "--out", out
    )
    assert "'batch' parameter" in refusal(capsys, "train", "bc", "--set", "batch=2.5", "--data", demos, "--out", out)
    assert "CartPole-v1" in refusal(capsys, "evaluate", policy, "--env", "CartPole-v2")
    dqn = ("demos", "collect", "--env", "CartPole-v1", "--demonstrator", "dqn", "--mode", "sampled")
    dqn = (*dqn, "--out", folder / "dqn.npz")
    assert "no mode 'sampled'" in refusal(capsys, *dqn)
    assert "Acrobot-v1" in refusal(capsys, "evaluate", policy, "--env", "Acrobot-v1")
    assert "demonstrator" in refusal(
        capsys, "demos", "collect", "--env", "CartPole-v1", "--demonstrator", "x", "--out", "x.npz"
    )
    assert "algorithm 'dagger'" in refusal(
        capsys, "reproduce", "--env", "CartPole-v1", "--algorithms", "dagger", "--out", out
    )
    assert "--sizes" in refusal(capsys, "reproduce", "--env", "CartPole-v1", "--sizes", "one", "--out", out)
    for words in (("dsfn", "--updates", "11"), ("dsfn+rounds=3", "--updates", "4")):
        words = ("reproduce", "--env", "CartPole-v1", "--out", out, "--algorithms", *words)
        assert "rounds" in refusal(capsys, *words)
    for pairs in ("ppo", "ppo:sampled:twice", "", "ppo:greedy,ppo:greedy"):
        words = ("reproduce", "--env", "CartPole-v1", "--demonstrators", pairs, "--out", out)
        assert "--demonstrators" in refusal(capsys, *words)
    assert "size" in refusal(capsys, "reproduce", "--env", "CartPole-v1", "--sizes", "0", "--out", out)
    assert not out.exists()


def test_bad_numbers(capsys, folder, demos):
    out = folder / "never"
    for words, word in (
        (("--updates", "0"), "updates"),
        (("--thin", "0"), "thin"),
        (("--thin-offset", "7"), "thin_offset"),
        (("--trajectories", "99"), "99"),
        (("--held-out", "1.5"), "between 0 and 1"),
        (("--draw-seed", "-1"), "draw_seed"),
        (("--out", "."), "name a folder"),
    ):
        assert word in refusal(capsys, "train", "bc", "--data", demos, "--out", out, *words)
    assert "trajectories" in refusal(
        capsys, "demos", "collect", "--env", "CartPole-v1", "--trajectories", "0", "--out", folder / "n.npz"
    )
    assert not out.exists()


def test_bad_files(capsys, folder, demos):
    out = folder / "never"

    def refused(path) -> str:
        message = refusal(capsys, "train", "bc", "--data", path, "--out", out)
        assert str(path) in message
        return message

    assert "no such file" in refused(folder / "missing.npz")
    assert "folder" in refused(folder)
    (folder / "text.npz").write_text("not a zip")
    refused(folder / "text.npz")
    (folder / "half.npz").write_bytes(demos.read_bytes()[: demos.stat().st_size // 2])
    refused(folder / "half.npz")
    assert "'lengths'" not in refused(npz(folder, "short.npz", actions=np.zeros(14, np.int32)))
    assert "action 7" in refused(npz(folder, "range.npz", actions=np.full(15, 7, np.int32)))
    values = np.zeros((18, 4), np.float32)
    values[7, 2] = np.nan
    assert "trajectory 1, step 1, column 2" in refused(npz(folder, "nan.npz", observations=values))
    assert not out.exists()


def test_nothing_is_overwritten_unless_told(capsys, demos, policy):
    before = {path.name: path.read_bytes() for path in policy.iterdir()}
    assert "--overwrite" in refusal(capsys, "train", "bc", "--data", demos, "--out", policy)
    assert "--overwrite" in refusal(capsys, "demos", "collect", "--env", "CartPole-v1", "--out", demos)
    assert {path.name: path.read_bytes() for path in policy.iterdir()} == before


def test_a_policy_of_another_version(capsys, folder, policy):
    description = json.loads((policy / "policy.json").read_text())
    other = folder / "newer"
    other.mkdir()
    (other / "weights.safetensors").write_bytes((policy / "weights.safetensors").read_bytes())
    (other / "policy.json").write_text(json.dumps({**description, "version": 5}))
    message = refusal(capsys, "evaluate", other, "--env", "CartPole-v1")
    assert "format 5" in message
    assert "upgrade" in message


def test_a_diverged_training_leaves_no_policy(capsys, demos, folder):
    out = folder / "diverged"
    words = ("--set", "learning_rate=1e30", "--updates", "20")
    assert "diverged" in refusal(capsys, "train", "bc", "--data", demos, "--out", out, *words)
    assert not out.exists()
    assert (folder / "diverged.diverged.csv").read_text().startswith("update,policy_loss\n20,")


def test_an_empty_folder_may_be_filled_and_the_data_stay(capsys, demos, folder):
    empty = folder / "made before"
    empty.mkdir()
    main(["train", "majority", "--data", str(demos), "--out", str(empty)])
    assert (empty / "policy.json").exists()
    capsys.readouterr()
    data = empty / "metrics.csv"  # it has the name of a file that a policy has
    data.write_text("pulse,treat\n1,a\n2,b\n")
    words = ("train", "majority", "--data", data, "--action", "treat", "--out", empty, "--overwrite")
    assert "holds an input file" in refusal(capsys, *words)
    assert data.read_text().startswith("pulse")


def test_a_single_action_and_a_single_step(capsys, folder):
    """A single action leaves nothing to learn, and texts say "1 step", not "1 steps"."""
    one = Trajectory(np.zeros((1, 4), np.float32), np.zeros(1, np.int32))
    demonstrations.save(Demonstrations((one,), ("left", "right")), folder / "single.npz")
    main(["train", "bc", "--data", str(folder / "single.npz"), "--out", str(folder / "one action"), "--updates", "1"])
    text = capsys.readouterr().out
    assert "only one action was taken: there is nothing to learn" in text
    assert "never taken in training, so never learned: right" in text
    assert "(bc, 1 update, " in text
    assert "agreement on 1 step, " in text


def test_overwrite_replaces_policies_only(capsys, demos, folder):
    own = folder / "own"
    own.mkdir()
    (own / "notes.txt").write_text("mine")
    words = ("train", "bc", "--data", demos, "--out", own, "--overwrite", "--updates", "5")
    assert "notes.txt" in refusal(capsys, *words)
    assert (own / "notes.txt").read_text() == "mine"


def test_a_full_disk(capsys, demos, folder, monkeypatch):
    import errno

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "full"))

    monkeypatch.setattr(os, "fsync", full)
    message = refusal(capsys, "train", "bc", "--data", demos, "--out", folder / "full", "--updates", "10")
    assert "No space left" in message
    assert not (folder / "full").exists()
    assert not list(folder.glob(".full*.tmp"))


# What is interrupted


@pytest.mark.parametrize("words", [("show",), ("show", "--json"), ("--help",), ("train", "--help"), ("algorithms",)])
@pytest.mark.parametrize("buffered", [True, False])
def test_a_reader_that_goes_is_no_error(policy, words, buffered):
    """As in `sbil show policy/ | head -1`, whether rich or Python prints, at once or at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    words = (words[0], str(policy), *words[1:]) if words[0] == "show" else words
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    done = subprocess.run(
        sbil(*words), stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, check=False, timeout=100
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


SLOW = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except BaseException:
    print("it was raised")
    raise
"""
WITHIN = {
    "where nothing can be raised": "class Gone:\n def __del__(self): raise KeyboardInterrupt\nact = lambda _: Gone()",
    "while a module is imported": "act = lambda words: __import__('slow')",
}


@pytest.mark.parametrize("where", WITHIN)
def test_an_interrupt_at_a_bad_place_leaves_quietly(tmp_path, where):
    """By itself, Python would print a traceback and continue, or a compiled module would abort the process."""
    (tmp_path / "slow.py").write_text(SLOW)
    script = f"from sbil import cli\n{WITHIN[where]}\ncli._dispatch = act\ncli.program()\nprint('it went on')"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr
    assert "continue where they stopped" in done.stderr


def test_interrupt_leaves_with_130_and_goes_on(folder, programs):
    out = folder / "interrupted"
    words = ("quickstart", "--out", str(out), "--runs", "1", "--updates", "600", "--episodes", "2")
    process = start(*words, env=programs)
    deadline = time.monotonic() + 200
    while not list(out.glob("cells/*.parquet")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "continue where they stopped" in error
    assert "Traceback" not in error
    kept = {path.name: path.read_bytes() for path in out.glob("cells/*.parquet")}
    assert 1 <= len(kept) < 6
    done = finish(*words, env=programs)
    assert done.returncode == 0, done.stderr
    assert f"{len(kept)}/6" in done.stderr
    assert "kept from before" in done.stderr
    now = {path.name: path.read_bytes() for path in out.glob("cells/*.parquet")}
    assert len(now) == 6
    assert kept.items() <= now.items()


def test_killed_training_resumes_to_the_same_bytes(demos, folder, programs):
    whole, resumed = folder / "whole", folder / "resumed"
    words = ["train", "edm", "--data", str(demos), "--updates", "2000", "--thin", "20"]
    words += ["--set", "chain_length=2", "buffer_size=64", "hidden=8"]
    quick = {**programs, "SBIL_CHECKPOINT_SECONDS": "0"}
    assert finish(*words, "--out", str(whole), env=programs).returncode == 0
    process = start(*words, "--out", str(resumed), env=quick)
    deadline = time.monotonic() + 200
    while not list(folder.glob(".resumed.*.checkpoint")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert not resumed.exists()
    assert len(list(folder.glob(".resumed.*.checkpoint"))) == 1
    done = finish(*words, "--out", str(resumed), env=programs)
    assert done.returncode == 0, done.stderr
    assert "resumed at update" in done.stderr
    for name in ("weights.safetensors", "policy.json", "metrics.csv"):
        assert (whole / name).read_bytes() == (resumed / name).read_bytes(), name
    assert not list(folder.glob(".resumed.*"))
