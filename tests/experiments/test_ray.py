"""Ray: a grid on a real cluster of two nodes gives the same bits as in this process, whatever fails on the way."""

import dataclasses
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sbil.experiments.on_ray as executor
from cells import cell_of, changed
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.experiments import Method, Result
from sbil.experiments.on_ray import on_ray
from sbil.experiments.run import run_cells, run_grid
from sbil.experiments.store import Store
from sbil.experiments.table import TableTask, cells_of_table, wanted

if find_spec("ray") is None:
    pytest.skip("needs Ray", allow_module_level=True)
# Nodes listen on the network; nobody else may use them. Ray reads this when it is imported.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
ray = executor.load()

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings(r"ignore:os\.fork:RuntimeWarning"),  # the nodes are started after JAX
]

TINY = cell_of(draws=2, initialisations=2, updates=20, episodes=3)
BC = [TINY, dataclasses.replace(TINY, size=3)]
EDM = [dataclasses.replace(cell, method=Method("edm")) for cell in BC]
CELLS = [*BC, *EDM]
TOGETHER = 8  # runs in one program: the two sizes of a method make a group
CPUS = {"num_cpus": 2}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes whose own settings of JAX are not those of this process."""
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="sbil-", dir="/tmp")  # the paths of Ray's sockets must be short
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("JAX_NUM_CPU_DEVICES", "1")
        patch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
        found = Cluster(initialize_head=True, head_node_args={**CPUS, "include_dashboard": False})
        found.add_node(**CPUS)
    yield found
    found.shutdown()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The results of this process, by cell."""
    store = Store(tmp_path_factory.mktemp("here"))
    return {result.cell: result for result, _ in run_grid(CELLS, store, together=TOGETHER)}


def assert_same(results, expected, cells):
    assert sorted(map(str, (result.cell for result in results))) == sorted(map(str, cells))
    for result in results:
        other = expected[result.cell]
        np.testing.assert_array_equal(result.returns, other.returns)
        np.testing.assert_array_equal(result.diverged_at, other.diverged_at)
        np.testing.assert_array_equal(result.points, other.points)
        assert result.curves.keys() == other.curves.keys()
        for name, values in result.curves.items():
            np.testing.assert_array_equal(values, other.curves[name])
        assert (result.settings, result.chosen, result.scale) == (other.settings, other.chosen, other.scale)
        assert result.made_by == other.made_by
        assert result.made_by["devices"] == 2


def noted(folder, stalls):
    """A `run_group` that notes its node when training begins, and then waits if `stalls(attempt, node)`."""

    def run_group(cells):
        import os
        import time

        import ray

        from sbil.experiments.on_ray import packed
        from sbil.experiments.run import run_cells

        node = ray.get_runtime_context().get_node_id()
        name = cells[0].method.algorithm
        attempt = len(list(folder.glob(f"{name}-*.begun")))

        def watch(cells, share, report):
            (folder / f"{name}-{attempt}.part").write_text(f"{os.getpid()} {node}")
            (folder / f"{name}-{attempt}.part").rename(folder / f"{name}-{attempt}.begun")
            end = time.monotonic() + 300
            while stalls(attempt, node) and time.monotonic() < end:
                time.sleep(0.1)

        results = run_cells(cells, watch)
        (folder / f"{name}-{attempt}.done").touch()
        return packed(results)

    return run_group


def as_soon_as(look, act):
    """A thread that calls `act` with what `look` finds, and a list that shows that it did."""
    acted = []

    def wait():
        for _ in range(3000):
            if found := look():
                act(found)
                acted.append(found)
                return
            time.sleep(0.1)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, acted


def test_without_ray_the_install_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"^the executor ray needs Ray; install it with: pip install 'sbil\[ray\]'$"):
        on_ray()


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("127.0.0.1:99999", "no Ray cluster answers"),
        ("auto", "no Ray cluster answers at 127.0.0.1:1"),
        ("ray://127.0.0.1:1", "host:port"),
        ("somewhere", "host:port"),
    ],
)
def test_a_wrong_address_is_refused_at_once(tmp_path, monkeypatch, address, word):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    started = time.monotonic()
    with pytest.raises(UserError, match=word) as caught:
        list(run_grid([TINY], Store(tmp_path), execute=on_ray(address)))
    assert time.monotonic() - started < 10
    assert "\n" not in str(caught.value)


def test_a_cluster_that_is_gone_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(executor, "NOTED", tmp_path / "noted")
    executor.NOTED.write_text("127.0.0.1:1\n")
    with pytest.raises(UserError, match=r"no Ray cluster answers at 127\.0\.0\.1:1;"):
        executor.require_listener("auto")


def test_workers_get_the_settings_of_this_process(monkeypatch):
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    monkeypatch.setenv("XLA_FLAGS", "--some")
    found = executor.environment(7)
    assert (found["JAX_ENABLE_X64"], found["XLA_FLAGS"], found["JAX_NUM_CPU_DEVICES"]) == ("1", "--some", "7")
    monkeypatch.delenv("XLA_FLAGS")
    assert executor.environment(7)["XLA_FLAGS"] == ""
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
    assert "JAX_NUM_CPU_DEVICES" not in executor.environment(3)


@pytest.fixture(scope="class")
def connection(cluster):
    """A connection of the caller's own, which is used and left."""
    ray.init(cluster.address, log_to_driver=False)
    yield
    assert ray.is_initialized()
    ray.shutdown()


@pytest.mark.release
@pytest.mark.usefixtures("connection")
class TestOnACluster:
    """One connection for all of these, so that warm workers are used again."""

    @pytest.fixture
    def second(self, cluster):
        """The node that this process is not connected to."""
        return next(iter(cluster.worker_nodes), None) or cluster.add_node(**CPUS)

    def test_a_grid_gives_the_same_bits_and_a_second_call_runs_nothing(self, cluster, expected, tmp_path):
        store = Store(tmp_path)
        found = list(run_grid(CELLS, store, together=TOGETHER, execute=on_ray(cluster.address)))
        assert all(fresh for _, fresh in found)
        assert_same([result for result, _ in found], expected, CELLS)
        again = list(run_grid(CELLS, store, together=TOGETHER, execute=on_ray("127.0.0.1:1")))
        assert not any(fresh for _, fresh in again)
        assert_same([result for result, _ in again], expected, CELLS)

    def test_cells_of_a_table_are_sent_with_their_data(self, cluster, tmp_path):
        """A baseline and an algorithm; what comes back is the cell that was sent, and can be run again."""
        observations = np.random.default_rng(0).normal(size=(10, 5, 2)).astype(np.float32)
        stays = tuple(Trajectory(each, (each[:, 0] > 0).astype(int)) for each in observations)
        task = TableTask.of("Ward", Demonstrations(stays, ("no", "yes")))
        cells = cells_of_table(task, wanted(["majority", "bc"], 2, 5))
        found = [result for result, _ in run_grid(cells, Store(tmp_path), execute=on_ray(cluster.address))]
        alone = {result.cell: result for cell in cells for result in run_cells([cell])}
        for result in found:
            assert result.cell.task.demonstrations is task.demonstrations
            for name, values in result.metrics.items():
                np.testing.assert_array_equal(values, alone[result.cell].metrics[name])

    def test_a_mistake_in_a_worker_arrives_as_one_line_and_is_not_tried_again(self, cluster, tmp_path, monkeypatch):
        attempts = tmp_path / "attempts"

        def run_group(cells):
            from sbil.experiments.run import run_cells

            with attempts.open("a") as file:
                file.write("x")
            run_cells(cells)

        monkeypatch.setattr(executor, "run_group", run_group)
        cell = changed(TINY, method=Method("dsfn"), thin=500, updates=1)  # one step a trajectory
        with pytest.raises(UserError, match=r"^dsfn needs trajectories: .*") as caught:
            list(run_grid([cell], Store(tmp_path), execute=on_ray(cluster.address)))
        assert type(caught.value) is UserError
        assert "\n" not in str(caught.value)
        assert attempts.read_text() == "x"

    def test_a_killed_worker_costs_no_result(self, cluster, expected, tmp_path, monkeypatch, capfd):
        notes = tmp_path / "notes"
        notes.mkdir()
        monkeypatch.setattr(executor, "run_group", noted(notes, lambda attempt, node: attempt == 0))
        begun = notes / "bc-0.begun"
        thread, killed = as_soon_as(
            lambda: begun.exists() and begun.read_text().split(), lambda note: os.kill(int(note[0]), signal.SIGKILL)
        )
        found = list(run_grid(BC, Store(tmp_path / "store"), together=TOGETHER, execute=on_ray(cluster.address)))
        thread.join()
        assert killed
        assert sorted(path.name for path in notes.iterdir()) == ["bc-0.begun", "bc-1.begun", "bc-1.done"]
        assert_same([result for result, _ in found], expected, BC)
        assert capfd.readouterr().out == ""

    def test_a_lost_node_costs_no_result(self, cluster, second, expected, tmp_path, monkeypatch):
        lost = second.node_id
        notes = tmp_path / "notes"
        notes.mkdir()
        monkeypatch.setattr(executor, "run_group", noted(notes, lambda attempt, node: node == lost))
        # Each of the two groups takes all CPUs of a node, so one of them is there.
        thread, removed = as_soon_as(
            lambda: [path for path in notes.glob("*.begun") if lost in path.read_text()],
            lambda begun: cluster.remove_node(second, allow_graceful=False),
        )
        found = list(run_grid(CELLS, Store(tmp_path / "store"), together=TOGETHER, execute=on_ray(cluster.address)))
        thread.join()
        ((begun,),) = removed
        name = begun.name.removesuffix("-0.begun")
        others = {"bc", "edm"} - {name}
        assert sorted(path.stem for path in notes.glob("*.done")) == sorted([f"{name}-1", *(f"{o}-0" for o in others)])
        assert_same([result for result, _ in found], expected, CELLS)


@pytest.mark.release
class TestALostCause:
    """The executor makes its own connections; the workers are quick because they compute nothing."""

    def test_a_group_that_is_lost_too_often_is_named_and_the_rest_is_kept(
        self, cluster, expected, tmp_path, monkeypatch
    ):
        store, attempts = Store(tmp_path / "store"), tmp_path / "attempts"
        content = executor.packed([expected[cell] for cell in BC])

        def run_group(cells):
            import os
            import signal
            import time

            if cells[0].method.algorithm == "bc":
                return content
            while not list(store.folder.glob("*.parquet")):
                time.sleep(0.1)
            with attempts.open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(executor, "run_group", run_group)
        monkeypatch.setattr(executor, "RETRIES", 1)
        with pytest.raises(UserError, match=r"^Ray gave up .* edm n=1 and 1 more \(WorkerCrashedError: ") as caught:
            list(run_grid(CELLS, store, together=TOGETHER, execute=on_ray(cluster.address)))
        assert "\n" not in str(caught.value)
        assert attempts.read_text() == "xx"
        assert [store.holds(cell) for cell in CELLS] == [True, True, False, False]
        assert not ray.is_initialized()
        executor.require_listener(cluster.address)  # the cluster runs on

    def test_a_worker_with_another_sbil_is_refused(self, cluster, expected, tmp_path, monkeypatch):
        other = dataclasses.replace(expected[TINY], fingerprint="0" * 16)
        content = executor.packed([other])
        monkeypatch.setattr(executor, "run_group", lambda cells: content)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        with pytest.raises(UserError, match="the same version of sbil"):
            list(run_grid([TINY], Store(tmp_path), execute=on_ray("auto")))
        assert not Store(tmp_path).holds(TINY)


PROGRAM = """
import signal, sys
from pathlib import Path

import ray
import sbil.experiments.on_ray as executor
from sbil.experiments import Cell, EnvironmentTask, Method
from sbil.experiments.run import run_grid
from sbil.experiments.store import Store

folder = Path(sys.argv[1])
content = (folder / "content").read_bytes()

def run_group(cells):
    import os, time

    if cells[0].method.algorithm == "bc":
        return content
    while not list((folder / "store").glob("*.parquet")):  # the driver has kept the first
        time.sleep(0.05)
    (folder / "part").write_text(str(os.getpid()))
    (folder / "part").rename(folder / "running")
    time.sleep(600)

executor.run_group = run_group
handler = signal.getsignal(signal.SIGTERM)
task = EnvironmentTask("CartPole-v1", "ppo", "sampled", 20, 3)
cells = [Cell(task, Method(name), 1, 2, 2, 20) for name in ("bc", "edm")]
try:
    for result, _ in run_grid(cells, Store(folder / "store"), execute=executor.on_ray()):
        assert signal.getsignal(signal.SIGTERM) is handler
except KeyboardInterrupt:
    assert not ray.is_initialized()
    print("interrupted")
"""


def test_ctrl_c_keeps_what_is_finished_and_ends_a_ray_of_our_own(expected, monkeypatch):
    folder = Path(tempfile.mkdtemp(prefix="sbil-", dir="/tmp"))
    (folder / "content").write_bytes(executor.packed([expected[TINY]]))
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    command = [sys.executable, "-W", "error", "-c", PROGRAM, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        thread, interrupted = as_soon_as((folder / "running").exists, lambda _: process.send_signal(signal.SIGINT))
        spoken = process.communicate(timeout=300)
        thread.join()
    assert interrupted
    assert (process.returncode, spoken) == (0, ("interrupted\n", ""))
    store = Store(folder / "store")
    assert (store.holds(TINY), store.holds(EDM[0])) == (True, False)
    assert not Path(f"/proc/{(folder / 'running').read_text()}").exists()
    everything = subprocess.run(["ps", "-A", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert str(folder) not in everything
    shutil.rmtree(folder)


def blank(cell):
    runs = len(cell.runs)
    return Result(
        cell, np.zeros((runs, cell.task.episodes)), (0.0, 1.0), np.full(runs, -1), fingerprint=cell.fingerprint
    )


class Pretence:
    """The part of Ray that `run_groups` needs; at every look the oldest task has ended."""

    exceptions = ray.exceptions

    def __init__(self, *cpus):
        self.cpus, self.cells, self.asked, self.fetched, self.cancelled = cpus, [], [], [], []

    @property
    def under_way(self):
        return len(self.cells) - len(self.fetched) - len(self.cancelled)

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": count}} for count in self.cpus]

    def remote(self, function):
        return self

    def options(self, num_cpus, **others):
        def remote(cells):
            self.cells.append(cells)
            self.asked.append(num_cpus)
            return len(self.cells) - 1

        return SimpleNamespace(remote=remote)

    def wait(self, tasks, num_returns=1, timeout=None):
        return tasks[:1], tasks[1:]

    def get(self, task):
        self.fetched.append(task)
        return executor.packed(list(map(blank, self.cells[task])))

    def cancel(self, task, force):
        self.cancelled.append(task)


MANY = [[dataclasses.replace(TINY, size=size)] for size in range(1, 31)]


def test_tasks_are_sent_a_few_at_a_time(tmp_path):
    pretence = Pretence(4, 2, 1)  # with two devices: room for 2 + 1 + 0 tasks at once
    under_way = []
    for (result,), (cell,) in zip(executor.run_groups(pretence, MANY, Store(tmp_path)), MANY, strict=True):
        under_way.append(pretence.under_way)
        assert result.cell == cell
    assert max(under_way) == 5  # two for each, less the one that has just ended
    assert pretence.asked == [2] * 30
    assert pretence.cancelled == []


def test_what_another_process_finishes_is_not_run(tmp_path):
    store, pretence = Store(tmp_path), Pretence(2)
    store.save(blank(MANY[5][0]))
    seen = []
    for (result,) in executor.run_groups(pretence, MANY[:8], store):
        seen.append(result.cell.size)
        if len(seen) == 1:
            store.save(blank(MANY[1][0]))  # sent already
            store.save(blank(MANY[2][0]))  # not yet
    assert sorted(seen) == list(range(1, 9))
    assert [cells[0].size for cells in pretence.cells] == [1, 2, 4, 5, 7, 8]
    assert pretence.cancelled == [1]


def test_tasks_shrink_with_the_largest_machine(tmp_path):
    pretence = Pretence(2)
    seen = []
    for (result,) in executor.run_groups(pretence, MANY[:4], Store(tmp_path)):
        seen.append(result.cell.size)
        pretence.cpus = (1,)
    assert seen == [1, 2, 3, 4]
    assert pretence.asked == [2, 2, 1, 1, 1]
    assert pretence.cancelled == [1]


def test_tasks_that_nobody_waits_for_are_cancelled(tmp_path):
    pretence = Pretence(2)
    results = executor.run_groups(pretence, MANY, Store(tmp_path))
    next(results)
    results.close()
    assert pretence.cancelled == [1]


def test_a_cluster_without_cpus_is_refused(tmp_path):
    with pytest.raises(UserError, match="no CPUs"):
        next(executor.run_groups(Pretence(0, 0), MANY, Store(tmp_path)))
