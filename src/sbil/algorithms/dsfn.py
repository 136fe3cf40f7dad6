"""Apprenticeship learning with deep successor features: find a reward under which no policy beats the demonstrator.

    warm start:  features phi(s) and a first policy pi_0 (see tril)
    each round i, with the policy pi_i:
        successor features  psi(s,a) = (1 - discount) phi(s,a) + discount psi(s',a'),   a' ~ pi_i,
                            phi(s,a) = [phi(s); onehot a]
        feature expectations  mu_i = mean over initial states of psi(s0,a0),   a0 ~ pi_i
        reward  w = argmax_{|w| <= 1} min_j w.(mu_demonstrator - mu_j), by the nearest point of the hull of mu_0..mu_i
        pi_{i+1}  greedy in Q, double Q-learning with the reward w.phi(s,a)

Needs trajectories. Lee, Srinivasan and Doshi-Velez (2019), "Truly Batch Apprenticeship Learning with Deep Successor
Features", after Abbeel and Ng (2004). One update is one round. The found policy that agrees best with
held-out decisions acts. Everything is learned from demonstrated steps alone, so the values of actions that were never
taken are extrapolations.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, choose, config, setting
from sbil.algorithms.tril import Heads, TRILConfig, TRILState, tril
from sbil.dataset import Dataset, Pool, Rows, Spec
from sbil.networks import Network, Scaling, make_network


@config
class DSFNConfig:
    """Settings of deep successor feature networks."""

    learning_rate: float = setting(3e-4, "step of Adam, of all networks", open_low=True)
    discount: float = setting(0.99, "discount", "gamma", high=0.9999)
    rounds: int = setting(10, "rounds of inverse reinforcement learning at most", low=1)
    margin: float = setting(0.001, "stop when no reward separates the demonstrator by more than this", "epsilon")
    held_out: float = setting(0.2, "share of the steps that is held out to choose among the policies found", high=1)
    target_rate: float = setting(0.01, "how fast target networks follow", high=1)
    hidden: tuple[int, ...] = setting((64, 64), "hidden layers of the successor features and of Q")
    trunk: tuple[int, ...] = setting((128, 64), "layers of the warm start; the last gives the features", low=1)
    head: tuple[int, ...] = setting((128,), "hidden layers of each head of the warm start")
    dynamics: float = setting(1.4, "weight of the prediction of the next state in the warm start")
    warm_updates: int = setting(50_000, "gradient steps of the warm start", low=1)
    warm_batch: int = setting(64, "triples per step of the warm start", low=1)
    feature_updates: int = setting(50_000, "gradient steps of the successor features, each round", low=1)
    feature_batch: int = setting(32, "triples per step of the successor features", low=1)
    value_updates: int = setting(30_000, "gradient steps of Q-learning, each round", low=1)
    value_batch: int = setting(64, "triples per step of Q-learning", low=1)


class StepTable(NamedTuple):
    """The labelled steps of a run and what never changes about them: one row per step, padding included."""

    pool: Pool
    scaling: Scaling
    steps: Int[Array, " rows"]  # of the pool
    action: Float[Array, "rows actions"]  # one-hot
    terminal: Bool[Array, " rows"]
    features: Float[Array, "rows features"]  # phi(s,a)

    def state(self, rows: Int[Array, " batch"]) -> Float[Array, "batch inputs"]:
        """Return the states at `rows`, standardised."""
        return self.scaling(self.pool.before(self.steps[rows]))

    def next_state(self, rows: Int[Array, " batch"]) -> Float[Array, "batch inputs"]:
        """Return the next states at `rows`, standardised; the same state if the next one is not known."""
        return self.scaling(self.pool.after(self.steps[rows]))

    def each(self, function: Callable[[Int[Array, " batch"]], Array]) -> Array:
        """Return `function` of the numbers of all rows. Images are large, so only a few are processed at a time."""
        rows = jnp.arange(len(self.steps))
        if not self.pool.images:
            return function(rows)
        return jax.lax.map(lambda row: function(row[None])[0], rows, batch_size=256)


class DSFNState(NamedTuple):
    """The warm start, the policies found so far, and the policy that acts."""

    heads: Heads
    scaling: Scaling
    training: Rows  # of the run's labelled steps, those to learn from ...
    held_out: Rows  # ... and those to choose a policy by
    demonstrated: Float[Array, " features"]  # mu of the demonstrator
    found: Float[Array, "rounds features"]  # mu_0, mu_1, ...
    round: Int[Array, ""]
    stopped: Bool[Array, ""]
    values: Network  # Q of the last round
    chosen: Network  # Q of the best round
    agreement: Float[Array, ""]  # of `chosen` with held-out decisions

    @property
    def network(self) -> Network:
        """Return the chosen Q as a network of unscaled observations."""
        return self.scaling.folded_into(self.chosen)


def nearest_in_hull(
    point: Float[Array, " features"], corners: Float[Array, "n features"], present: Bool[Array, " n"]
) -> Float[Array, " n"]:
    """Return weights of the point nearest to `point` in the hull of the corners that are present.

    Pairwise steps with exact line search: weight moves from the worst corner in use to the best one. Finding the reward
    with the largest margin t over all policies found is the same problem: t is the distance, w the direction. In tens
    of dimensions a thousand steps are exact to rounding. In a very thin hull of two or three dimensions they can stop
    before the exact point.
    """
    offsets = jnp.where(present[:, None], corners - point, 0.0)
    gram = offsets @ offsets.T

    def step(_: Array, weights: Array) -> Array:
        slope = gram @ weights
        best = jnp.argmin(jnp.where(present, slope, jnp.inf))
        worst = jnp.argmax(jnp.where(weights > 0, slope, -jnp.inf))
        curvature = gram[best, best] - 2 * gram[best, worst] + gram[worst, worst]
        wanted = (slope[worst] - slope[best]) / jnp.maximum(curvature, 1e-30)
        moved = jnp.clip(wanted, 0.0, weights[worst])
        return weights.at[worst].add(-moved).at[best].add(moved)

    first = jax.nn.one_hot(jnp.argmin(jnp.where(present, jnp.diagonal(gram), jnp.inf)), len(corners))
    return jax.lax.fori_loop(0, 1000, step, first.astype(gram.dtype))


def discounted_weights(
    pool: Pool, rows: Rows, discount: float | Array
) -> tuple[Float[Array, " rows"], Bool[Array, " rows"]]:
    """Return ((1 - discount) * discount^t for every row, which rows begin a trajectory).

    t counts from the first row of each trajectory. If steps were thinned, a kept step represents all steps up to the
    next kept one. The last one, unless it is a true end, represents all that would have followed, because successor
    features bootstrap there too.
    """
    time, trajectory, terminal = (column[rows.indices] for column in (pool.time, pool.trajectory, pool.terminal))
    number, mask = jnp.arange(len(time)), rows.mask
    gap = time - jnp.roll(time, 1)
    follows = (trajectory == jnp.roll(trajectory, 1)) & (gap > 0) & (number > 0) & mask
    stride = jnp.min(gap, where=follows, initial=jnp.iinfo(time.dtype).max)
    stride = jnp.where(follows.any(), stride, 1)
    start = jax.lax.cummax(jnp.where(follows, 0, number))
    goes_on = jnp.roll(follows, -1) & (number < len(time) - 1)
    share = jnp.where(goes_on | terminal, 1 - discount**stride, 1.0)
    return jnp.where(mask, share * discount ** (time - time[start]), 0.0), mask & ~follows


Loss = Callable[[Network, Network, PRNGKeyArray, Array], Array]  # (network, target, key, rows of a minibatch) -> loss


def descend(
    key: PRNGKeyArray, network: Network, loss: Loss, rows: Rows, updates: int, batch: int, config: DSFNConfig
) -> tuple[Network, Float[Array, ""]]:
    """Minimise a loss with Adam; the target follows slowly. Return (network, last loss)."""
    optimiser = optax.adam(config.learning_rate)

    def step(carry: Any, number: Array) -> tuple[Any, None]:
        network, target, optimiser_state, _ = carry
        draw, act = jax.random.split(jax.random.fold_in(key, number))
        value, gradient = jax.value_and_grad(loss)(network, target, act, rows.sample(draw, batch))
        change, optimiser_state = optimiser.update(gradient, optimiser_state)
        network = optax.apply_updates(network, change)
        target = optax.incremental_update(network, target, config.target_rate)
        return (network, target, optimiser_state, value), None

    carry = network, network, optimiser.init(network), jnp.zeros(())
    (network, _, _, value), _ = jax.lax.scan(step, carry, jnp.arange(updates))
    return network, value


def bounds(values: Float[Array, "rows *features"], rows: Rows) -> tuple[Array, Array]:
    """Return the bounds of every (1 - discount)-weighted discounted sum of the rows' values.

    Bootstrapped values are clipped to them. Without the clip they would grow without end off the data.
    """
    mine = values[rows.indices]
    mask = rows.mask.reshape(-1, *(1,) * (mine.ndim - 1))
    return mine.min(axis=0, where=mask, initial=0.0), mine.max(axis=0, where=mask, initial=0.0)


def successor_features(
    key: PRNGKeyArray,
    spec: Spec,
    table: StepTable,
    rows: Rows,
    next_policy: Float[Array, "rows actions"],
    config: DSFNConfig,
) -> tuple[Network, Float[Array, ""]]:
    """Return (psi, last loss): psi(s,a) of a policy, given by its probabilities at the table's next states."""
    actions, features = spec.actions, table.features.shape[1]
    log_policy = jnp.log(next_policy)
    low, high = bounds(table.features, rows)

    def loss(psi: Network, target: Network, key: PRNGKeyArray, batch: Array) -> Array:
        following = jax.nn.one_hot(jax.random.categorical(key, log_policy[batch]), actions)
        after = target(jnp.concatenate([table.next_state(batch), following], axis=-1)).clip(low, high)
        goes_on = jnp.where(table.terminal[batch], 0.0, config.discount)[:, None]
        goal = (1 - config.discount) * table.features[batch] + goes_on * after
        found = psi(jnp.concatenate([table.state(batch), table.action[batch]], axis=-1))
        return jnp.square(found - jax.lax.stop_gradient(goal)).sum(axis=-1).mean()

    psi = make_network(jax.random.fold_in(key, 0), spec, config.hidden, features, "tanh", more=actions)
    return descend(jax.random.fold_in(key, 1), psi, loss, rows, config.feature_updates, config.feature_batch, config)


def q_learning(
    key: PRNGKeyArray, spec: Spec, table: StepTable, rows: Rows, reward: Float[Array, " rows"], config: DSFNConfig
) -> tuple[Network, Float[Array, ""]]:
    """Return (Q, last loss): Q of the best policy for a reward, by double Q-learning on the recorded steps."""
    low, high = bounds(reward, rows)

    def loss(q: Network, target: Network, key: PRNGKeyArray, batch: Array) -> Array:
        following = table.next_state(batch)
        preferred = q(following).argmax(axis=-1)
        after = jnp.take_along_axis(target(following), preferred[:, None], axis=1)[:, 0].clip(low, high)
        goes_on = jnp.where(table.terminal[batch], 0.0, config.discount)
        goal = (1 - config.discount) * reward[batch] + goes_on * after
        found = (q(table.state(batch)) * table.action[batch]).sum(axis=-1)
        return jnp.square(found - jax.lax.stop_gradient(goal)).mean()

    q = make_network(jax.random.fold_in(key, 0), spec, config.hidden, spec.actions, "tanh")
    return descend(jax.random.fold_in(key, 1), q, loss, rows, config.value_updates, config.value_batch, config)


def make_table(dataset: Dataset, heads: Heads, scaling: Scaling, actions: int) -> StepTable:
    """Return the steps of a run as the networks see them."""
    pool, steps = dataset.pool, dataset.labelled.indices
    action = jax.nn.one_hot(pool.action[steps], actions)
    table = StepTable(pool, scaling, steps, action, pool.terminal[steps], action)
    features = table.each(lambda rows: heads.features(table.state(rows)))
    return table._replace(features=jnp.concatenate([features, action], axis=-1))


def dsfn(spec: Spec, config: DSFNConfig) -> Algorithm:
    """Apprenticeship learning with deep successor features as three pure functions."""
    shared = {name: getattr(config, name) for name in ("learning_rate", "trunk", "head", "dynamics")}
    warm = tril(spec, TRILConfig(batch=config.warm_batch, **shared))

    def init(key: PRNGKeyArray, dataset: Dataset) -> DSFNState:
        rows, pool = dataset.labelled, dataset.pool
        every = Rows(jnp.arange(len(rows.indices)), rows.size)
        # In random order the first steps are held out. If there is none to hold out, all steps choose the policy.
        draws = jax.random.uniform(jax.random.fold_in(key, 1), rows.mask.shape)
        rank = jnp.argsort(jnp.argsort(jnp.where(rows.mask, draws, 2.0)))
        kept_out = rank < jnp.minimum(jnp.floor(config.held_out * rows.size), rows.size - 1)
        training = every.where(~kept_out)
        held_out = every.where(kept_out | ~kept_out.any())
        known = pool.known[rows.indices]
        learnt = known & ~kept_out & rows.mask
        learnable = Dataset(pool, Rows(rows.indices[training.indices], training.size), dataset.unlabelled)

        def step(number: Array, state: TRILState) -> TRILState:
            return warm.update(jax.random.fold_in(key, number + 3), state, learnable)[0]

        started = warm.init(jax.random.fold_in(key, 0), learnable)
        state = jax.lax.fori_loop(0, config.warm_updates, step, started)
        table = make_table(dataset, state.heads, state.scaling, spec.actions)
        weights, first = discounted_weights(pool, rows, config.discount)
        usable = jnp.where(kept_out, 0.0, weights)
        mean = jnp.where(rows.mask[:, None], table.features, 0.0).T @ usable / jnp.maximum(usable.sum(), 1e-12)
        demonstrated = mean * weights.sum() / jnp.maximum(first.sum(), 1)
        q = make_network(jax.random.fold_in(key, 2), spec, config.hidden, spec.actions, "tanh")
        return DSFNState(
            heads=state.heads,
            scaling=state.scaling,
            training=every.where(jnp.where(learnt.any(), learnt, known)),
            held_out=held_out,
            demonstrated=demonstrated,
            found=jnp.zeros((config.rounds, len(demonstrated))),
            round=jnp.int32(0),
            stopped=jnp.array(False),
            values=q,
            chosen=q,
            agreement=jnp.float32(-1.0),
        )

    def policy(state: DSFNState, at: Array) -> Array:
        """Return pi_i: in the first round the warm start's policy, later the greedy policy of the last Q."""
        greedy = jax.nn.one_hot(state.values(at).argmax(axis=-1), spec.actions)
        return jnp.where(state.round == 0, jax.nn.softmax(state.heads.policy(at)), greedy)

    def update(key: PRNGKeyArray, state: DSFNState, dataset: Dataset) -> tuple[DSFNState, Metrics]:
        table = make_table(dataset, state.heads, state.scaling, spec.actions)
        _, first = discounted_weights(dataset.pool, dataset.labelled, config.discount)
        # mu_i, exactly over the actions at the initial states.
        next_policy = table.each(lambda rows: policy(state, table.next_state(rows)))
        psi, feature_loss = successor_features(
            jax.random.fold_in(key, 0), spec, table, state.training, next_policy, config
        )
        expected = jnp.zeros(len(state.demonstrated))
        at_start = table.each(lambda rows: policy(state, table.state(rows)))
        for action in range(spec.actions):

            def value(rows: Array, action: int = action) -> Array:
                taken = jnp.broadcast_to(jax.nn.one_hot(action, spec.actions), (len(rows), spec.actions))
                return psi(jnp.concatenate([table.state(rows), taken], axis=-1))

            expected += (table.each(value) * at_start[:, action, None]).sum(axis=0, where=first[:, None])
        found = state.found.at[state.round].set(expected / jnp.maximum(first.sum(), 1), mode="drop")
        # The reward with the largest margin.
        weights = nearest_in_hull(state.demonstrated, found, jnp.arange(config.rounds) <= state.round)
        apart = state.demonstrated - weights @ found
        margin = jnp.linalg.norm(apart)
        reward = table.features @ (apart / jnp.maximum(margin, 1e-12))
        # pi_{i+1}, and whether it is the best so far.
        q, value_loss = q_learning(jax.random.fold_in(key, 1), spec, table, state.training, reward, config)
        preferred = table.each(lambda rows: q(table.state(rows)).argmax(axis=-1))
        right = (preferred == table.action.argmax(axis=-1))[state.held_out.indices]
        agreement = right.sum(where=state.held_out.mask) / jnp.maximum(state.held_out.size, 1)
        # The round in which the margin closes is the last. The first round always runs, so there is always a policy.
        over = state.stopped | (state.round >= config.rounds)
        better = ~over & (agreement > state.agreement)
        metrics = {
            "agreement": agreement,
            "margin": margin,
            "feature_loss": feature_loss,
            "value_loss": value_loss,
            "rounds": (state.round + ~over).astype(jnp.float32),
        }
        return state._replace(
            found=jnp.where(over, state.found, found),
            round=state.round + ~over,
            stopped=over | (margin <= config.margin),
            values=choose(over, state.values, q),
            chosen=choose(better, q, state.chosen),
            agreement=jnp.where(better, agreement, state.agreement),
        ), metrics

    return Algorithm(init, update, batch=max(config.warm_batch, config.feature_batch, config.value_batch))


ENTRY = Entry(
    make=dsfn,
    presets={"default": DSFNConfig()},
    needs="trajectories",
    reference="Lee, Srinivasan and Doshi-Velez (2019)",
    titles={"default": "DSFN"},
    rounds=lambda config: config.rounds,
    chunk=1,
)
