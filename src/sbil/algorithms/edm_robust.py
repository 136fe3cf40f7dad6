"""EDM with its remedies: the same two terms, and one switch per remedy.

    L = L_pi + weight * R,     R = L_rho + square * L_rho^2 + penalty * (mean E(s)^2 + mean E(s~)^2)

Needs pairs, and uses state-only observations if there are any. docs/understanding_edm.md measures what goes wrong in
EDM and what each switch changes. The switches and their sources:

separate    the energy is a separate output, so the state term moves the policy only through the shared layers below
estimator   how the states' law is learned: Langevin chains (Jarrett, Bica and van der Schaar 2020); noise-contrastive
            estimation (Gutmann and Hyvarinen 2010); denoising score matching (Vincent 2011). The latter two need no
            samples of the model; for the last `noise` is the jitter, in spreads
penalty     keeps energies small (Du and Mordatch 2019)
fade        the state term ends before the training does
prior       the state term counts as a fixed number of decisions, as a prior does: more decisions give it less weight
balance     the largest allowed ratio of the state term's gradient to the policy term's
batch       larger batches let the policy term keep up with the state term
noise       sqrt(2 * step_size) makes the chains' temperature 1 (Welling and Teh 2011); EDM's is 0.005
scaled      steps in units of each coordinate's spread
metropolis  steps are accepted or not, so that the chains' law is exact (Roberts and Tweedie 1996)
bound       chains stay near the box of the demonstrated states
start       chains start in that box, at demonstrated states, or from a normal law per action (Grathwohl et al. 2020)
average     the policy is a running mean of the iterates (Polyak and Juditsky 1992)
half_life   Adam's learning rate decays
"""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sbil import langevin
from sbil.algorithms.base import Algorithm, Entry, Metrics, config, setting
from sbil.algorithms.bc import policy_loss
from sbil.algorithms.edm import LIMITS
from sbil.dataset import Dataset, Spec, features_of
from sbil.errors import UserError
from sbil.networks import Network, energy, policy_network, uniform_dense


@config
class EDMRobustConfig:
    """Settings of EDM with its remedies."""

    learning_rate: float = setting(1e-3, "step of Adam", open_low=True)
    half_life: float = setting(0.0, "updates after which the learning rate has halved; 0: never")
    weight_decay: float = setting(0.0, "decoupled weight decay (AdamW coefficient)")
    average: float = setting(0.999, "share of the running mean of the weights that each update keeps", high=1)
    batch: int = setting(256, "pairs per update", "N", low=1)
    chains: int = setting(64, "chains per update", low=1)
    hidden: tuple[int, ...] = setting((64, 64), "hidden layers of the network")
    separate: bool = setting(False, "the energy is a separate output instead of a function of the logits")
    estimator: Literal["chains", "contrastive", "score"] = setting("chains", "how the law of the states is learned")
    weight: float = setting(1.0, "weight of the state term; 0 is behavioural cloning")
    fade: float = setting(0.0, "updates after which that weight has halved; 0: never")
    prior: float = setting(
        30.0,
        "decisions that the state term counts as: its weight is times min(1, prior / N) with N decisions; 0: times 1",
    )
    balance: float = setting(0.0, "largest ratio of the state term's gradient to the policy term's; 0: no limit")
    square: float = setting(1.0, "weight of the squared state term (chains)")
    penalty: float = setting(0.0, "weight of the squared energies (chains)")
    step_size: float = setting(0.1, "Langevin step", "alpha")
    noise: float = setting(
        0.4472,
        "standard deviation of the Langevin noise; of score matching, the jitter in spreads",
        "sigma",
        open_low=True,
    )
    scaled: float = setting(
        0.0, "steps in units of each coordinate's spread to this power: 1 its spread, 0 its own unit", high=1
    )
    metropolis: bool = setting(False, "accept or reject Langevin steps, so that their law is exact")
    bound: float = setting(0.0, "how far chains may leave their box, in widths of the box; 0: anywhere")
    start: Literal["box", "data", "mixture"] = setting("box", "where chains start", "U(S)")
    chain_length: int = setting(5, "Langevin steps per update", "iota", low=1)
    buffer_size: int = setting(10_000, "chains kept (at least as many as an update continues)", "kappa", low=1)
    restart: float = setting(0.05, "probability that a chain starts afresh", "delta", high=1)


class Mixture(NamedTuple):
    """For each action a normal law of the states at which it was taken, and how often it was taken."""

    means: Float[Array, "actions inputs"]
    spreads: Float[Array, "actions inputs"]
    log_share: Float[Array, " actions"]


class Law(NamedTuple):
    """The law of the demonstrated states: their box, one normal law of all, and one per action."""

    box: langevin.Box
    mean: Float[Array, " inputs"]
    spread: Float[Array, " inputs"]
    mixture: Mixture | None = None  # where chains start from it


class EDMRobustState(NamedTuple):
    """The network that acts, the one that learns (the same unless iterates are averaged), and the chains."""

    network: Network
    learner: Network
    optimiser: optax.OptState
    buffer: Float[Array, "size inputs"]
    law: Law
    updates: Int[Array, ""]


def law_of(dataset: Dataset) -> Law:
    """Return the law of a run's labelled states. For images nothing is computed: every pixel lies in [-1, 1]."""
    box = langevin.Box(*dataset.bounds())
    if dataset.pool.images:
        return Law(box, jnp.zeros_like(box.low), jnp.ones_like(box.low))
    mean, spread = dataset.moments()
    varies = spread > 1e-6 * (1 + jnp.abs(mean))
    return Law(box, mean, jnp.where(varies, spread, 1e-3 * (1 + jnp.abs(mean))))


def mixture_of(dataset: Dataset, law: Law, actions: int) -> Mixture:
    """Return the law per action. An action that was taken once has no spread; it gets a tenth of the total spread."""
    rows = dataset.labelled
    taken = (dataset.pool.action[rows.indices] == jnp.arange(actions)[:, None]) & rows.mask  # [actions, rows]
    places = jnp.where(rows.mask[:, None], (dataset.pool.before(rows.indices) - law.mean) / law.spread, 0.0)
    times = taken.sum(axis=1)
    count = jnp.maximum(times, 1)[:, None]
    means, squares = taken @ places / count, taken @ places**2 / count
    spreads = jnp.maximum(jnp.sqrt(jnp.maximum(squares - means**2, 0.0)), 0.1)
    return Mixture(law.mean + law.spread * means, law.spread * spreads, jnp.log(times / rows.size))


def contrastive_loss(network: Network, seen: Array, drawn: Array, law: Law) -> Float[Array, ""]:
    """Return the loss of telling demonstrated states from draws of the law by exp(-E). E is learned with its constant.

    Densities are those of standardised coordinates, so that energies do not depend on units.
    """

    def odds(states: Array) -> Array:
        places = (states - law.mean) / law.spread
        return -energy(network(states)) + (places**2 + jnp.log(2 * jnp.pi)).sum(axis=-1) / 2

    return jax.nn.softplus(-odds(seen)).mean() + jax.nn.softplus(odds(drawn)).mean()


def score_loss(network: Network, seen: Array, jolt: Array, jitter: Float[Array, " inputs"]) -> Float[Array, ""]:
    """Return how badly -dE/ds points from a jittered state back to the state itself, per coordinate."""
    slope = jax.grad(lambda states: -energy(network(states)).sum())(seen + jitter * jolt)
    return ((jitter * slope + jolt) ** 2).mean() / 2


def norm(tree: Network) -> Float[Array, ""]:
    """Return the length of a gradient."""
    return jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree)))


def edm_robust(spec: Spec, config: EDMRobustConfig) -> Algorithm:
    """EDM with its remedies as three pure functions."""

    def halved(updates: Array, half_life: float | Array) -> Array:
        return jnp.where(half_life > 0, jnp.exp2(-updates / jnp.maximum(half_life, 1e-6)), 1.0)

    optimiser = optax.adamw(
        lambda count: config.learning_rate * halved(count, config.half_life), weight_decay=config.weight_decay
    )

    def fresh(key: PRNGKeyArray, law: Law, dataset: Dataset, count: int, kept: DTypeLike = jnp.float32) -> Array:
        where, which = jax.random.split(key)
        shape = count, features_of(spec)
        if config.start == "data":
            return dataset.pool.before(dataset.labelled.sample(which, count)).astype(kept)
        if law.mixture is None:
            box = (side.astype(kept) for side in law.box)
            return langevin.uniform(jax.random.uniform(where, shape, kept), *box)
        action = jax.random.categorical(which, law.mixture.log_share, shape=(count,))
        return law.mixture.means[action] + law.mixture.spreads[action] * jax.random.normal(where, shape)

    def init(key: PRNGKeyArray, dataset: Dataset) -> EDMRobustState:
        for name, value in (("estimator", "contrastive"), ("start", "mixture")):
            if dataset.pool.images and getattr(config, name) == value:
                raise UserError(f"{name} {value} needs rows of numbers, not images; use the default of {name}.")
        network = policy_network(jax.random.fold_in(key, 0), spec, config.hidden)
        if config.separate:
            level = uniform_dense(jax.random.fold_in(key, 2), network.output.weight.shape[0], 1)
            where = (lambda n: n.level) if hasattr(network, "level") else (lambda n: n.head.level)
            network = eqx.tree_at(where, network, level, is_leaf=lambda leaf: leaf is None)
        law = law_of(dataset)
        if config.start == "mixture":
            law = law._replace(mixture=mixture_of(dataset, law, spec.actions))
        size = max(config.buffer_size, config.chains) if config.estimator == "chains" else 0
        kept = jnp.float16 if dataset.pool.images else jnp.float32  # chains of images are large
        buffer = fresh(jax.random.fold_in(key, 1), law, dataset, size, kept)
        return EDMRobustState(network, network, optimiser.init(network), buffer, law, jnp.int32(0))

    def sample(key: PRNGKeyArray, state: EDMRobustState, dataset: Dataset) -> tuple[Array, Array]:
        """Return (the states that demonstrated ones are compared with, the chains after it)."""
        shape = config.batch, features_of(spec)
        if config.estimator == "score":
            return jax.random.normal(key, shape), state.buffer
        if config.estimator == "contrastive":
            return state.law.mean + state.law.spread * jax.random.normal(key, shape), state.buffer
        draw, begin, go = jax.random.split(key, 3)
        new = fresh(begin, state.law, dataset, config.chains)
        draws = jax.random.uniform(draw, (config.chains, 2))
        chosen, states = langevin.resume(draws, state.buffer, new, config.restart)
        moving = jnp.where(config.weight > 0, 1.0, 0.0)  # without a state term nothing bounds the chains: keep them
        unit = moving * state.law.spread**config.scaled
        reach = jnp.where(config.bound > 0, config.bound, jnp.inf) * (state.law.box.high - state.law.box.low + 1e-6)
        within = langevin.Box(state.law.box.low - reach, state.law.box.high + reach)
        chain = langevin.adjusted_chain if config.metropolis else langevin.chain
        step_size, noise = config.step_size * unit**2, config.noise * unit
        model = lambda states: energy(state.learner(states))  # noqa: E731
        states = chain(go, model, states, config.chain_length, step_size, noise, within)
        return jax.lax.stop_gradient(states), langevin.put_back(state.buffer, chosen, states)

    def state_term(network: Network, seen: Array, other: Array, law: Law) -> tuple[Array, Metrics]:
        low = energy(network(seen))
        if config.estimator == "score":
            return score_loss(network, seen, other, config.noise * law.spread), {"energy": low.mean()}
        if config.estimator == "contrastive":
            return contrastive_loss(network, seen, other, law), {"energy": low.mean()}
        high = energy(network(other))
        l_rho = low.mean() - high.mean()
        size = (low**2).mean() + (high**2).mean()
        return l_rho + config.square * l_rho**2 + config.penalty * size, {"energy_gap": l_rho, "energy": low.mean()}

    def update(key: PRNGKeyArray, state: EDMRobustState, dataset: Dataset) -> tuple[EDMRobustState, Metrics]:
        batch = dataset.batch(jax.random.fold_in(key, 0), config.batch)
        seen = dataset.states(jax.random.fold_in(key, 1), batch)
        other, buffer = sample(jax.random.fold_in(key, 2), state, dataset)
        l_pi, to_imitate = jax.value_and_grad(policy_loss)(state.learner, batch)
        (l_state, metrics), to_model = jax.value_and_grad(state_term, has_aux=True)(
            state.learner, seen, other, state.law
        )
        sizes = norm(to_imitate), norm(to_model)
        believed = jnp.minimum(config.prior / dataset.labelled.size, 1.0)
        weight = config.weight * halved(state.updates, config.fade) * jnp.where(config.prior > 0, believed, 1.0)
        limit = config.balance * sizes[0] / jnp.maximum(weight * sizes[1], 1e-12)
        weight *= jnp.where(config.balance > 0, jnp.minimum(limit, 1.0), 1.0)
        gradient = jax.tree.map(lambda one, other: one + weight * other, to_imitate, to_model)
        step, optimiser_state = optimiser.update(gradient, state.optimiser, state.learner)
        learner = optax.apply_updates(state.learner, step)
        # The iterate's share of the weighted mean of the iterates. The first network has no share.
        count = state.updates + 1.0
        share = jnp.where(config.average < 1, (1 - config.average) / (1 - config.average**count), 1 / count)
        network = jax.tree.map(lambda mean, latest: mean + share * (latest - mean), state.network, learner)
        metrics |= {"policy_loss": l_pi, "state_loss": l_state, "policy_gradient": sizes[0]}
        metrics |= {"state_gradient": weight * sizes[1]}
        if config.estimator == "chains":
            metrics |= {"chain_size": jnp.abs(other).max()}
        return EDMRobustState(network, learner, optimiser_state, buffer, state.law, state.updates + 1), metrics

    return Algorithm(init, update, batch=config.batch, limits=LIMITS)


BARE = EDMRobustConfig(  # every switch off: EDM with the square
    average=0.0, batch=64, prior=0.0, step_size=0.01, noise=0.01, scaled=0.0, chain_length=20
)
PRESETS = {"default": EDMRobustConfig(), "bare": BARE}
ENTRY = Entry(
    make=edm_robust,
    presets=PRESETS,
    needs="pairs",
    reference="Jarrett, Bica and van der Schaar (2020)",
    titles={"default": "EDM, robust"},
    uses_states=True,
    trains_energy=True,
)
