"""Random keys made from names: runs are paired across algorithms, and a new algorithm changes no number."""

import hashlib

import jax
from jaxtyping import PRNGKeyArray


def named(*names: str | int) -> PRNGKeyArray:
    """Return the key of a thing with this name; other names give independent keys."""
    digest = hashlib.sha256("\x1f".join(map(str, names)).encode()).digest()
    first, second = (int.from_bytes(digest[i : i + 4], "big") for i in (0, 4))
    return jax.random.fold_in(jax.random.key(first), second)
