"""CKIL: the policy that balances where decisions lead with what is decided there, both estimated by kernels.

    P(s',a'|s,a) = pi(a'|s') T(s'|s,a),                       pi = softmax f(s)
    T_ij = sum_l w_jl K(s'_i, s'_l),                          K(x, y) = exp(-|x - y|^2 / (2 h))
    P_ij = sum_l w_jl K(s'_i, s'_l) 1[a'_l = a'_i],           w_jl = K(s_j, s_l) 1[a_j = a_l], divided by its sum over l
    L = mean_i sum_j [P_ij - pi(a'_i|s'_i) T_ij]^2 / C - entropy * mean_i H(pi(.|s'_i))

Needs quadruples: a decision and the very next one, both in the draw. Without any, as after thinning, commands refuse
the data; where they are not asked, this is BC with the loss (1 - pi(a|s))^2. Agrawal, Dahlin, Jain and Nayyar (2023),
"Conditional Kernel Imitation Learning for Continuous State Environments". The double sum is a regression:

    sum_j [P_ij - pi T_ij]^2 = C_i (pi - q_i)^2 + constant,   C_i = sum_j T_ij^2,   q_i = sum_j P_ij T_ij / C_i

C is the mean of C_i, so that `entropy` counts per decision. The estimates do not depend on pi: no gradient passes
through them. With `estimate="batch"` l and j run over the minibatch, as printed; with "all" over all decisions of the
draw (at most `centres`), once, before training. Kernels are 1 at distance 0 and share the variance h; with the printed
normaliser and a variance of its own for T, q_i would not be a probability. States are standardised, and h is chosen by
leave-one-out likelihood of the decisions a' at s' (`rule`), never by returns.

The printed variances are tuned per task and per number of trajectories. The rules `cartpole`, `acrobot` and
`lunar_lander` hold them, for states as they are, and take those of the largest printed number of trajectories (1, 3, 7,
10, 15) that the draw has. They say nothing about other tasks; batch size and number of updates were not printed.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, Metrics, adam, config, cross_entropy, setting
from sbil.algorithms.bc import BCConfig
from sbil.dataset import Dataset, Rows, Spec, features_of
from sbil.errors import UserError
from sbil.networks import Network, Scaling, in_float32, make_network, scaling

PRINTED = {  # h of K, and the count of numbers in a state
    "cartpole": ((0.01, 0.005, 0.001, 0.0008, 0.0001), 4),
    "acrobot": ((0.1, 0.05, 0.01, 0.008, 0.005), 6),
    "lunar_lander": ((0.009, 0.005, 0.0005, 0.00008, 0.00005), 8),
}
TRAJECTORIES = (1, 3, 7, 10, 15)  # for which h was printed
OCTAVES = (-8, 2)  # the grid of h: these powers of 2 times Scott's rule
PRIOR = 1e-3  # weight of equal shares in the leave-one-out likelihood
TINY = 1e-12  # a sum of kernels that is smaller counts as nothing
BLOCK = 256  # decisions for which estimates are computed together
WRITTEN_OUT = 32  # columns of a state
STRANDED = 0.01  # a decision below this probability has almost no gradient


@config
class CKILConfig(BCConfig):
    """Settings of CKIL."""

    learning_rate: float = setting(0.01, "step of Adam", open_low=True)
    batch: int = setting(64, "decisions per update", low=1)
    hidden: tuple[int, ...] = setting((64, 32), "hidden layers of the network (ReLU)")
    entropy: float = setting(0.001, "weight of the policy's entropy", "lambda")
    estimate: Literal["batch", "all"] = setting("batch", "decisions that an estimate is made of")
    targets: Literal["taken", "every"] = setting("taken", "actions whose probability is fitted")
    predecessors: Literal["own", "permuted", "ignored"] = setting(
        "own", "(s, a) of a decision: its own, another's, or none, which leaves labels smoothed by kernels"
    )
    leave_out: bool = setting(False, "leave a decision out of its own estimate")
    rule: Literal["validated", "scott", "median", "cartpole", "acrobot", "lunar_lander"] = setting(
        "validated", "how the variance of kernels is found", "h"
    )
    bandwidth: float = setting(1.0, "factor of that variance", open_low=True)
    centres: int = setting(2048, "largest number of decisions in an estimate of all, and in a rule", low=1)


class Quadruples(NamedTuple):
    """Decisions and what came before them. States are scaled."""

    state: Float[Array, "rows inputs"]
    action: Int[Array, " rows"]
    after: Float[Array, "rows inputs"]
    decision: Int[Array, " rows"]
    mask: Bool[Array, " rows"]


class Targets(NamedTuple):
    """What the kernels say of some decisions."""

    weight: Float[Array, "*rows"]  # C_i
    share: Float[Array, "*rows actions"]  # q_i, of every action


class Kernels(NamedTuple):
    """The decisions of a run, and the kernels between them."""

    rows: Rows  # steps at which a' was decided
    linked: Bool[Array, ""]  # whether the step before each is known too
    scaling: Scaling
    width: Float[Array, ""]  # h
    other: Float[Array, ""]  # what the kernel of (s, a) is multiplied with if the actions differ


class CKILState(NamedTuple):
    """The network and its optimiser, the kernels, and the estimates if they are made once."""

    network: Network
    optimiser: optax.OptState
    kernels: Kernels
    estimate: Targets | None


def squares(one: Float[Array, "rows inputs"], other: Float[Array, "others inputs"]) -> Float[Array, "rows others"]:
    """Return squared distances. On CPU a sum that is written out is many times faster, but wide ones compile slowly."""
    if one.shape[-1] > WRITTEN_OUT:
        return ((one[:, None, :] - other) ** 2).sum(axis=-1)
    columns = [(one[:, None, number] - other[:, number]) ** 2 for number in range(one.shape[-1])]
    return sum(columns[1:], start=columns[0])


def kernel(distances: Array, width: Float[Array, ""] | float) -> Array:
    """exp(-distance^2 / (2 h)), from squared distances."""
    return jnp.exp(-distances / (2 * width))


def transition_weights(centres: Quadruples, width: Array | float, other: Array | float) -> Float[Array, "rows rows"]:
    """w_jl: how alike (s, a) of two quadruples are. Rows add up to 1; those of padding are 0."""
    alike = jnp.where(centres.action[:, None] == centres.action, 1.0, other)
    similar = kernel(squares(centres.state, centres.state), width) * alike * centres.mask
    return similar / jnp.maximum(similar.sum(axis=-1, keepdims=True), TINY) * centres.mask[:, None]


def estimated(near: Float[Array, "rows centres"], weights: Array, decision: Array, actions: int) -> Targets:
    """Return C_i and q_i, from K(s'_i, s'_l) and w_jl. With one variance the shares of all actions add up to 1."""
    with in_float32():
        parts = near * ((near @ weights.T) @ weights)  # [i, l]: K_il sum_j T_ij w_jl
        total = parts.sum(axis=-1)
        share = parts @ jax.nn.one_hot(decision, actions)
    return Targets(total, share / jnp.maximum(total, TINY)[:, None])


def first_of_each(rows: Int[Array, " batch"]) -> Bool[Array, " batch"]:
    """Return where a row is drawn for the first time."""
    same = rows[:, None] == rows
    return ~jnp.tril(same, -1).any(axis=1)


def scott(count: Array | int, inputs: int) -> Float[Array, ""]:
    """Return the variance of Scott's rule, for standardised states."""
    return jnp.float32(count) ** (-2 / (inputs + 4))


def median_rule(after: Array, mask: Array, count: Array) -> Float[Array, ""]:
    """Return the variance with which a neighbour at the median distance weighs 1 / (count + 1)."""
    pairs = jnp.triu(mask[:, None] & mask, 1)
    middle = jnp.nanmedian(jnp.where(pairs, squares(after, after), jnp.nan))
    return jnp.nan_to_num(middle) / (2 * jnp.log(count + 1))


def left_out_likelihood(
    distances: Float[Array, "rows rows"], decision: Array, mask: Array, actions: int, width: Array
) -> Float[Array, ""]:
    """Return the log-likelihood of every decision under the shares of the others around it."""
    others = kernel(distances, width) * (mask & ~jnp.eye(len(mask), dtype=bool))
    agree = (others * (decision[:, None] == decision)).sum(axis=-1)
    chance = (agree + PRIOR / actions) / (others.sum(axis=-1) + PRIOR)
    return jnp.log(chance).sum(where=mask)


def validated(after: Array, decision: Array, mask: Array, actions: int, start: Array) -> Float[Array, ""]:
    """Return the variance of the grid around `start` with the largest leave-one-out likelihood."""
    grid = start * 2.0 ** jnp.arange(OCTAVES[0], OCTAVES[1] + 1)
    distances = squares(after, after)
    found = jax.lax.map(lambda width: left_out_likelihood(distances, decision, mask, actions, width), grid)
    return grid[found.argmax()]


def printed(rule: str, dataset: Dataset) -> Float[Array, ""]:
    """Return the printed variance for the number of trajectories in a draw."""
    rows = dataset.labelled
    trajectory = dataset.pool.trajectory[rows.indices]
    begins = jnp.append(True, trajectory[1:] != trajectory[:-1]) & rows.mask
    place = (begins.sum() >= jnp.array(TRAJECTORIES)).sum() - 1
    return jnp.array(PRINTED[rule][0])[jnp.maximum(place, 0)]


def mean_of(values: Float[Array, " rows"], mask: Bool[Array, " rows"]) -> Float[Array, ""]:
    """Return the mean over the rows that count; 0 if there is none."""
    return values.sum(where=mask) / jnp.maximum(mask.sum(), 1)


def per_decision(estimate: Targets, mask: Bool[Array, " rows"]) -> Targets:
    """Return the estimate with weights of mean 1."""
    return estimate._replace(weight=estimate.weight / jnp.maximum(mean_of(estimate.weight, mask), TINY))


def ckil(spec: Spec, config: CKILConfig) -> Algorithm:
    """CKIL as three pure functions."""
    optimiser = adam(config)

    def refuse(dataset: Dataset) -> None:
        if dataset.pool.images:
            raise UserError("ckil needs rows of numbers, not images; use bc.")
        wanted = PRINTED[config.rule][1] if config.rule in PRINTED else features_of(spec)
        if features_of(spec) != wanted:
            raise UserError(
                f"rule {config.rule} of ckil is for states of {wanted} numbers, and these have {features_of(spec)}; "
                f"use rule validated."
            )

    def quadruples(kernels: Kernels, dataset: Dataset, places: Array, mask: Array) -> Quadruples:
        """Return the decisions at some places of the list of decisions."""
        rows, pool, linked = kernels.rows, dataset.pool, kernels.linked.astype(int)
        steps, keep = rows.indices[places], mask[:, None]
        shifted = (places + rows.size // 2) % jnp.maximum(rows.size, 1) if config.predecessors == "permuted" else places
        earlier = rows.indices[shifted] - linked
        return Quadruples(
            jnp.where(keep, kernels.scaling(pool.before(earlier)), 0.0),
            pool.action[earlier],
            jnp.where(keep, kernels.scaling(pool.before(steps)), 0.0),
            pool.action[steps],
            mask,
        )

    def spaced(kernels: Kernels) -> tuple[Array, Array]:
        """Return the places of all decisions, or of evenly spaced ones, and a mask."""
        rows = kernels.rows
        count = min(config.centres, rows.indices.shape[-1])
        number = jnp.arange(count)
        places = (number * (jnp.maximum(rows.size, count) / count)).astype(int)
        return places, number < rows.size

    def width_of(kernels: Kernels, dataset: Dataset) -> Float[Array, ""]:
        if config.rule in PRINTED:
            return printed(config.rule, dataset)
        count = jnp.maximum(kernels.rows.size, 1)
        start = scott(count, features_of(spec))
        if config.rule == "scott":
            return start
        known = quadruples(kernels, dataset, *spaced(kernels))
        if config.rule == "median":
            return median_rule(known.after, known.mask, count)
        return validated(known.after, known.decision, known.mask, spec.actions, start)

    def kernels_of(dataset: Dataset) -> Kernels:
        found, labelled = dataset.quadruples, dataset.labelled
        linked = found.size > 0
        rows = Rows(
            jnp.where(
                linked, jnp.where(found.mask, found.indices + 1, 0), jnp.where(labelled.mask, labelled.indices, 0)
            ),
            jnp.where(linked, found.size, labelled.size),
        )
        raw = config.rule in PRINTED
        standard = Scaling(jnp.zeros(features_of(spec)), jnp.ones(features_of(spec))) if raw else scaling(dataset)
        kernels = Kernels(rows, linked, standard, jnp.float32(0), jnp.float32(0))
        width = jnp.maximum(config.bandwidth * width_of(kernels, dataset), TINY)
        other = jnp.exp(-1 / (2 * width)) if raw else jnp.float32(0)
        return kernels._replace(width=width, other=other)

    def estimate_of(kernels: Kernels, of: Quadruples, centres: Quadruples, own: Array, weights: Array) -> Targets:
        """Return the estimates of some decisions, from centres; `own` says which centre is the decision itself."""
        near = kernel(squares(of.after, centres.after), kernels.width) * centres.mask
        if config.leave_out:
            near = jnp.where(own, 0.0, near)
        found = estimated(near, weights, centres.decision, spec.actions)
        alone = Targets(jnp.ones_like(found.weight), jax.nn.one_hot(of.decision, spec.actions))
        return jax.tree.map(lambda one, other: jnp.where(kernels.linked, one, other), found, alone)

    def weights_of(kernels: Kernels, centres: Quadruples) -> Array:
        if config.predecessors == "ignored":
            centres = centres._replace(state=jnp.zeros_like(centres.state), action=jnp.zeros_like(centres.action))
        return transition_weights(centres, kernels.width, kernels.other)

    def from_all(kernels: Kernels, dataset: Dataset) -> Targets:
        """Return the estimates of every decision of a run."""
        places, mask = spaced(kernels)
        centres = quadruples(kernels, dataset, places, mask)
        weights = weights_of(kernels, centres)

        def block(numbers: Array) -> Targets:
            of = quadruples(kernels, dataset, numbers, numbers < kernels.rows.size)
            found = estimate_of(kernels, of, centres, numbers[:, None] == places, weights)
            return jax.tree.map(lambda leaf: (leaf.T * of.mask).T, found)

        capacity = kernels.rows.indices.shape[-1]
        numbers = jnp.arange(-(-capacity // BLOCK) * BLOCK).reshape(-1, BLOCK)
        found = jax.lax.map(block, numbers)
        found = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:capacity], found)
        return per_decision(found, kernels.rows.mask)

    def from_batch(kernels: Kernels, batch: Quadruples, places: Array) -> Targets:
        """Return the estimates of a minibatch, from itself."""
        weights = weights_of(kernels, batch)
        found = estimate_of(kernels, batch, batch, places[:, None] == places, weights)
        return per_decision(found, batch.mask)

    def init(key: PRNGKeyArray, dataset: Dataset) -> CKILState:
        refuse(dataset)
        network = make_network(jax.random.fold_in(key, 0), spec, config.hidden, spec.actions, "relu")
        kernels = kernels_of(dataset)
        estimate = from_all(kernels, dataset) if config.estimate == "all" else None
        return CKILState(network, optimiser.init(network), kernels, estimate)

    def loss(
        network: Network, observation: Array, decision: Array, estimate: Targets, mask: Array
    ) -> tuple[Array, Metrics]:
        logits = network(observation)
        policy, taken = jax.nn.softmax(logits), jax.nn.one_hot(decision, spec.actions)
        among = taken if config.targets == "taken" else jnp.ones_like(taken)
        fit = mean_of(estimate.weight * ((policy - estimate.share) ** 2 * among).sum(axis=-1), mask)
        entropy = mean_of(-(policy * jax.nn.log_softmax(logits)).sum(axis=-1), mask)
        low = ((policy < STRANDED) & (estimate.share > 0.5) & (taken > 0)).any(axis=-1)
        metrics = {"fit_loss": fit, "entropy": entropy, "stranded": mean_of(low.astype(float), mask)}
        metrics |= {"policy_loss": mean_of(cross_entropy(logits, decision), mask)}
        return fit - config.entropy * entropy, metrics

    def update(key: PRNGKeyArray, state: CKILState, dataset: Dataset) -> tuple[CKILState, Metrics]:
        kernels = state.kernels
        places = kernels.rows.places(jax.random.fold_in(key, 0), config.batch)
        mask = first_of_each(places)  # a decision that is drawn twice counts once
        if state.estimate is None:
            estimate = from_batch(kernels, quadruples(kernels, dataset, places, mask), places)
        else:
            estimate = jax.tree.map(lambda leaf: leaf[places], state.estimate)
        steps = kernels.rows.indices[places]
        seen = dataset.pool.before(steps), dataset.pool.action[steps], estimate, mask
        gradient, metrics = jax.grad(loss, has_aux=True)(state.network, *seen)
        step, optimiser_state = optimiser.update(gradient, state.optimiser, state.network)
        network = optax.apply_updates(state.network, step)
        return CKILState(network, optimiser_state, kernels, state.estimate), metrics | {"bandwidth": kernels.width}

    return Algorithm(init, update, batch=config.batch)


PRESETS = {
    "default": CKILConfig(),
    "all": CKILConfig(estimate="all"),
    **{f"printed_{rule}": CKILConfig(rule=rule) for rule in ("cartpole", "acrobot", "lunar_lander")},
}
ENTRY = Entry(
    make=ckil,
    presets=PRESETS,
    needs="quadruples",
    reference="Agrawal, Dahlin, Jain and Nayyar (2023)",
    titles={"default": "CKIL", "all": "CKIL, all decisions at once"},
)
