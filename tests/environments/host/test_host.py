"""Playing in worker processes against plain loops, whatever the number of workers, and when processes die."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
import simulators

from sbil import environments
from sbil.environments.host import gym, workers
from sbil.environments.host.forward import forward
from sbil.environments.host.lockstep import BLOCK
from sbil.environments.registered import from_gymnasium
from sbil.errors import UserError
from sbil.evaluation import Policies, call, play
from sbil.mixtures import Blend, adapted
from sbil.networks import mlp
from sbil.training import stack

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are killed by signals")


def layers_of(network):
    return [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in network.layers]


def networks(count, inputs=2, actions=2, hidden=(16,)):
    return stack([mlp(jax.random.key(i), (inputs, *hidden, actions)) for i in range(count)])


def constant(*logits):
    """One policy that always has these logits, over two numbers."""
    network = mlp(jax.random.key(0), (2, len(logits)))
    zeros = jax.tree.map(lambda leaf: 0 * leaf[None], network)
    return jax.tree.map(lambda leaf: np.array([logits], np.float32) if leaf.ndim == 2 else leaf, zeros)


# The forward pass.


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh"])
@pytest.mark.parametrize("sizes", [(8, 64, 64, 4), (4, 256, 256, 2), (3, 2)])
def test_forward_is_the_networks(activation, sizes):
    network = mlp(jax.random.key(1), sizes, activation)
    observations = np.random.default_rng(0).normal(0, 3, (40, sizes[0])).astype(np.float32)
    ours = forward(layers_of(network), activation, observations)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, network(observations), rtol=0, atol=3e-6)


def blend(weights=(0.5, 0.3, 0.2)):
    """Three networks that decide together, over two numbers."""
    parts = tuple(mlp(jax.random.key(number), (2, 16, 2)) for number in range(3))
    return Blend(parts, np.array(weights, np.float32))


@pytest.mark.parametrize("weights", [(0.5, 0.3, 0.2), (0.0, 1.0, 0.0)])
def test_forward_of_networks_that_decide_together(weights):
    together = blend(weights)
    layers = layers_of(stack(together.parts))
    observations = np.random.default_rng(0).normal(0, 30, (40, 2)).astype(np.float32)
    ours = forward(layers, "elu", observations, together.weights)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, together(observations), rtol=0, atol=3e-5)
    np.testing.assert_array_equal(forward(layers, "elu", observations[3:4], together.weights), ours[3:4])


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh"])
@pytest.mark.parametrize("hidden", [(64, 64), (256, 256), (13,)])
def test_a_row_is_the_same_to_the_bit_in_any_company(activation, hidden):
    layers = layers_of(mlp(jax.random.key(2), (8, *hidden, 4), activation))
    observations = np.random.default_rng(1).normal(0, 2, (BLOCK, 8)).astype(np.float32)
    whole = forward(layers, activation, observations)
    for count in range(1, BLOCK):
        for start in {0, 3, BLOCK - count}:
            part = observations[start : start + count].copy()
            np.testing.assert_array_equal(forward(layers, activation, part), whole[start : start + count])
    mixed = np.random.default_rng(2).permutation(BLOCK)
    np.testing.assert_array_equal(forward(layers, activation, observations[mixed]), whole[mixed])


# Playing.


def test_an_episode_does_not_depend_on_its_company_nor_on_the_workers(monkeypatch):
    name = "LunarLander-v3"
    nets = networks(2, 8, 4, (64, 64))
    seeds = np.arange(2 * 61).reshape(2, 61)
    for greedy in (True, False):
        monkeypatch.setenv("SBIL_WORKERS", "1")
        whole = gym.play(name, nets, seeds, greedy=greedy)
        for count in ("2", "3"):
            monkeypatch.setenv("SBIL_WORKERS", count)
            np.testing.assert_array_equal(gym.play(name, nets, seeds, greedy=greedy).returns, whole.returns)
        for company in (slice(55, 56), slice(50, 58)):
            part = gym.play(name, nets, seeds[:, company], greedy=greedy)
            np.testing.assert_array_equal(part.returns, whole.returns[:, company])
        one = jax.tree.map(lambda leaf: leaf[1:], nets)
        turned = gym.play(name, one, seeds[1:, ::-1], greedy=greedy)
        np.testing.assert_array_equal(turned.returns[0, ::-1], whole.returns[1])
    assert len(np.unique(whole.returns)) == whole.returns.size


def test_ends_of_episodes():
    """Episodes end by the environment, by its truncation or by the time limit; the last step counts."""
    for kwargs, length, terminal in [({"ends_at": 7}, 7, True), ({"stops_at": 5}, 5, False), ({}, 20, False)]:
        environment = from_gymnasium(simulators.register(f"Ends{length}-v0", **kwargs))
        played = environment.play(constant(0.0, 1.0), np.arange(3)[None], greedy=True, record=True)
        starts = [np.random.default_rng(seed).random() for seed in range(3)]
        np.testing.assert_allclose(played.returns, [[length * (1 + start) for start in starts]])
        assert played.returns.dtype == np.float64
        for episode, start in zip(played.episodes[0], starts, strict=True):
            expected = np.array([[count, start] for count in range(length + 1)], np.float32)
            np.testing.assert_array_equal(episode.observations, expected)
            np.testing.assert_array_equal(episode.actions, np.ones(length))
            assert (episode.observations.dtype, episode.actions.dtype) == (np.float32, np.int32)
            assert episode.terminal is terminal
    assert played.episodes[0][0].observations.flags.writeable


def test_sampled_actions_have_the_policys_probabilities():
    """Every episode and every step draw anew, also beyond the first lot of numbers."""
    environment = from_gymnasium(simulators.register("Long-v0", limit=600))
    policy = constant(np.log(0.25), np.log(0.75))
    played = environment.play(policy, np.arange(80)[None], greedy=False, record=True)
    actions = np.array([episode.actions for episode in played.episodes[0]])
    assert actions.mean() == pytest.approx(0.75, abs=0.01)
    np.testing.assert_allclose(actions.mean(0), 0.75, atol=0.25)
    assert len(np.unique(actions, axis=0)) == 80
    assert abs(np.corrcoef(actions[:, :80].ravel(), actions[:, 520:].ravel())[0, 1]) < 0.05
    again = environment.play(policy, np.array([[9]]), greedy=False, record=True)
    np.testing.assert_array_equal(again.episodes[0][0].actions, actions[9])


@pytest.mark.parametrize(("temperature", "share"), [(1.0, 0.45), (0.5, 0.45**2 / (0.45**2 + 0.55**2))])
def test_networks_that_decide_together_play(temperature, share):
    """(.9, .1) and (.2, .8) have the mean (.55, .45); a temperature acts on the mean."""
    environment = from_gymnasium(simulators.register("Together-v0", limit=100))
    parts = constant(np.log(0.9), np.log(0.1)), constant(np.log(0.2), np.log(0.8))
    policy = Blend(parts, np.full((1, 2), 0.5, np.float32))
    if temperature != 1:
        policy = adapted(policy, 2, None, temperature)
        policy = replace(policy, **{name: getattr(policy, name)[None] for name in ("mean", "scale", "temperature")})
    played = environment.play(policy, np.arange(80)[None], greedy=False, record=True)
    actions = np.array([episode.actions for episode in played.episodes[0]])
    assert actions.mean() == pytest.approx(share, abs=0.02)


def test_evaluate_plays_on_the_host():
    environment = from_gymnasium(simulators.register("Short-v0", limit=10))
    nets, key = networks(3), jax.random.key(3)
    returns = play(environment, Policies(call, nets), key, episodes=4)
    assert returns.shape == (3, 4)
    np.testing.assert_array_equal(play(environment, Policies(call, nets), key, episodes=2), returns[:, :2])


def test_what_an_environment_prints_does_not_disturb():
    environment = from_gymnasium(simulators.register("Prints-v0", prints=True))
    assert environment.play(constant(1.0, 0.0), np.zeros((1, 2), int), greedy=True).returns.shape == (1, 2)


def test_modules_found_after_the_workers_started(tmp_path, monkeypatch):
    gym.play("LunarLander-v3", networks(1, 8, 4), np.array([[0]]), greedy=True)  # a worker waits
    (tmp_path / "simulators_elsewhere.py").write_text("from simulators import Counter\n")
    monkeypatch.syspath_prepend(tmp_path)
    name = simulators.register("Elsewhere-v0", entry_point="simulators_elsewhere:Counter")
    assert from_gymnasium(name).play(networks(1), np.array([[0]]), greedy=True).returns.shape == (1, 1)


# Mistakes.


def test_mistakes_are_one_line(monkeypatch):
    name = "LunarLander-v3"
    seeds = np.zeros((1, 1), int)
    for policies, match in [
        (jax.numpy.zeros((1, 3)), "only fully connected networks play in LunarLander-v3"),
        (networks(2, 8, 4), "seeds for 1 policies, and 2"),
        (networks(1, 3, 4), "sees 3 numbers"),
    ]:
        with pytest.raises(UserError, match=match) as error:
            gym.play(name, policies, seeds, greedy=True)
        assert "\n" not in str(error.value)
    for bad in ("0", "-1", "two", "", "1.5", "²"):
        monkeypatch.setenv("SBIL_WORKERS", bad)
        with pytest.raises(UserError, match="SBIL_WORKERS must be a whole number from 1"):
            gym.play(name, networks(1, 8, 4), seeds, greedy=True)


def test_a_simulator_that_fails_says_how():
    environment = from_gymnasium(simulators.register("Fails-v0", fails=True))
    with pytest.raises(RuntimeError, match=r"(?s)Fails-v0 failed in a worker.*ValueError: the simulator is broken"):
        environment.play(networks(1), np.array([[0]]), greedy=True)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("MountainCar-v9", "unknown environment 'MountainCar-v9'; did you mean 'MountainCar"),
        ("qqqqqq", "unknown environment 'qqqqqq'; import the package"),
        ("os:CartPole-v1", "unknown environment"),
        ("Pendulum-v1", "continuous actions"),
    ],
)
def test_environments_of_gymnasium_that_are_refused(name, match):
    with pytest.raises(UserError, match=match):
        from_gymnasium(name)


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        ("continuous", "continuous actions"),
        ("multi", "MultiDiscrete"),
        ("late", "numbered from 0"),
        ("image", r"images of shape \(8, 8, 3\)"),
        ("dict", "has Dict"),
        ("number", "has Discrete"),
    ],
)
def test_spaces_that_are_refused(kind, match):
    name = simulators.register(f"Strange-{kind}-v0", entry_point="simulators:Strange", kind=kind)
    with pytest.raises(UserError, match=match):
        from_gymnasium(name)


def test_registrations_that_are_refused():
    with pytest.raises(UserError, match="no time limit"):
        from_gymnasium(simulators.register("Endless-v0", limit=None))
    for entry_point in (simulators.Counter, "__main__:Counter"):
        with pytest.raises(UserError, match="worker processes cannot repeat"):
            from_gymnasium(simulators.register("Local-v0", entry_point=entry_point))


def test_missing_packages(monkeypatch):
    for message, match in [("Box2D is not installed", r'pip install "sbil\[envs\]"'), ("MuJoCo, say", "MuJoCo, say")]:
        name = simulators.register("Needs-v0", entry_point="simulators:NeedsPackage", message=message)
        with pytest.raises(UserError, match=match):
            from_gymnasium(name)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UserError, match=r'gymnasium is not installed.*pip install "sbil\[envs\]"'):
        from_gymnasium("Never-v0")


@pytest.mark.parametrize("package", ["gymnasium", "Box2D"])
def test_workers_name_what_is_missing(package, tmp_path, monkeypatch):
    (tmp_path / f"{package}.py").write_text("raise ImportError('hidden')\n")
    monkeypatch.syspath_prepend(tmp_path)
    workers.close()
    with pytest.raises(UserError, match=r'not installed; install it with: pip install "sbil\[envs\]"$') as error:
        gym.play("LunarLander-v3", networks(1, 8, 4), np.zeros((1, 1), int), greedy=True)
    assert "\n" not in str(error.value)
    workers.close()


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
def test_get_falls_back_to_gymnasium(monkeypatch):
    assert environments.get("MountainCar-v0").spec == ((2,), 3)
    assert environments.get("MountainCar-v0") is environments.get("MountainCar-v0")
    assert environments.get("CartPole-v0").time_limit == 200  # similar in name to CartPole-v1, but another environment
    with pytest.raises(UserError, match="unknown environment 'cartpole'; did you mean 'CartPole-v1'"):
        environments.get("cartpole")
    with pytest.raises(UserError, match="no returns have been measured in MountainCar-v0"):
        environments.scale("MountainCar-v0", "ppo", "sampled")
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UserError, match="unknown environment 'qqqqqq'; choose from: Acrobot-v1"):
        environments.get("qqqqqq")


# Processes.


def waiting_workers():
    return {worker.pid for worker in workers._idle}


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_killed_worker_is_replaced(monkeypatch):
    monkeypatch.setenv("SBIL_WORKERS", "2")
    environment = from_gymnasium(simulators.register("Slow-v0", sleep=0.02))
    seeds = np.arange(4).reshape(4, 1)
    workers.close()
    before = environment.play(networks(4), seeds, greedy=True).returns
    victims = waiting_workers()
    assert len(victims) == 2
    timer = threading.Timer(0.25, lambda: [os.kill(pid, signal.SIGKILL) for pid in victims])
    timer.start()
    np.testing.assert_array_equal(environment.play(networks(4), seeds, greedy=True).returns, before)
    timer.join()
    assert not victims & waiting_workers()
    for pid in waiting_workers():  # workers that die while nothing is played
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(worker.alive() for worker in workers._idle))
    np.testing.assert_array_equal(environment.play(networks(4), seeds, greedy=True).returns, before)


def test_an_environment_that_kills_its_process(tmp_path):
    flag = tmp_path / "good"
    environment = from_gymnasium(simulators.register("Dies-v0", dies=str(flag)))
    with pytest.raises(UserError, match="died 2 times over the same episodes of Dies-v0"):
        environment.play(networks(1), np.array([[0]]), greedy=True)
    flag.touch()
    assert environment.play(networks(1), np.array([[0]]), greedy=True).returns.shape == (1, 1)


def run(code, **options):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, **options)


def test_workers_have_no_jax():
    modules = "sbil.environments.host.worker, sbil.environments.host.workers, gymnasium"
    done = run(f"import sys; import {modules}; print('jax' in sys.modules)")
    assert done.stdout.split() == ["False"]


# A script without a guard that deals units by hand; nothing in it imports JAX.
SCRIPT = """
import os, sys, threading, time
import numpy as np
from sbil.environments.host import workers
from sbil.environments.host.messages import Message

def unit(name, spec=None):
    header = {"name": name, "spec": spec, "path": sys.path, "activation": "elu", "greedy": True, "record": False}
    features, actions = (8, 4) if spec is None else (2, 2)
    return Message(header, [np.arange(3), np.zeros((features, actions), np.float32), np.zeros(actions, np.float32)])
"""
LONG = """
sys.path.insert(0, sys.argv[1])
import gymnasium, simulators
started = []
class Noted(workers.Worker):
    def __init__(self):
        super().__init__()
        started.append(self.pid)
workers.Worker = Noted
def tell():
    while len(started) < 2:
        time.sleep(0.02)
    time.sleep(1.5)  # by now both are in the middle of a step
    print(*started, flush=True)
threading.Thread(target=tell, daemon=True).start()
name = simulators.register("Sleepy-v0", sleep=30.0)
workers.deal([unit(name, gymnasium.spec(name).to_json())] * 2)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="states are read from /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_parent(number, tmp_path):
    """In the middle of a step that takes half a minute."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + LONG)
    environment = os.environ | {"SBIL_WORKERS": "2"}
    with subprocess.Popen(
        [sys.executable, script, HERE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        assert not any(gone(pid) for pid in pids)
        started = time.monotonic()
        process.send_signal(number)
        try:
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
        wait_until(lambda: all(gone(pid) for pid in pids))
        assert time.monotonic() - started < 8
        assert process.returncode
        if number == signal.SIGINT:
            assert errors.rstrip().endswith("KeyboardInterrupt")
            assert errors.count("Traceback") == 1


PRINT = '\nprint(workers.deal([unit("LunarLander-v3")])[0].arrays[0].tolist())\n'


@pytest.mark.parametrize("way", ["script", "command", "closed input", "all closed", "optimised"])
def test_however_the_parent_was_started(way, tmp_path):
    expected = gym.play("LunarLander-v3", constant8(), np.arange(3)[None], greedy=True).returns[0].tolist()
    script = tmp_path / "script.py"
    out = tmp_path / "out"
    script.write_text(SCRIPT + PRINT)
    commands = {
        "script": f'"{sys.executable}" script.py > out',
        "command": f'"{sys.executable}" -c "$(cat script.py)" > out',
        "closed input": f'"{sys.executable}" script.py > out <&-',
        "all closed": f'"{sys.executable}" script.py <&- 2>&- > out',
        "optimised": f'"{sys.executable}" -OO - < script.py > out',
    }
    subprocess.run(["sh", "-c", commands[way]], cwd=tmp_path, timeout=60, check=True)
    assert out.read_text().strip() == str(expected)


def constant8():
    return jax.tree.map(lambda leaf: 0 * leaf[None], mlp(jax.random.key(0), (8, 4)))


def test_a_forked_process_starts_its_own():
    """It does not share the workers of its parent."""
    code = (
        SCRIPT
        + """
first = workers.deal([unit("LunarLander-v3")])[0].arrays[0].tolist()
mine = {w.pid for w in workers._idle}
child = os.fork()
if child == 0:
    again = workers.deal([unit("LunarLander-v3")])[0].arrays[0].tolist()
    other = {w.pid for w in workers._idle}
    workers.close()
    os._exit(0 if again == first and not mine & other else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), mine == {w.pid for w in workers._idle})
"""
    )
    assert run(code).stdout.split() == ["0", "True"]
