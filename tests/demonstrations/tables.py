"""Small tables for the tests of reading."""

import json
from dataclasses import replace

import numpy as np

from sbil.demonstrations import reader_process
from sbil.errors import UserError

GOOD = "stay,hour,pulse,sex,treat\n1,0,60,m,none\n1,1,61,m,fluid\n2,0,80,f,none\n2,1,82,f,none\n"
ROLES = {"episode": "stay", "time": "hour", "action": "treat"}


def in_process(request, folder):
    """Does the work of the reader process in this process: hundreds of processes would take minutes."""
    try:
        return reader_process.answer(json.loads(json.dumps(request)), folder)
    except UserError as error:
        raise UserError(str(error)) from None


def without_fills(schema):
    """A schema without the means of its columns."""
    return schema and replace(schema, columns=tuple(replace(column, fill=None) for column in schema.columns))


def assert_same(one, other):
    """Equal trajectories, names, groups and schema."""
    assert (one.action_names, one.observation_names) == (other.action_names, other.observation_names)
    assert without_fills(one.schema) == without_fills(other.schema)
    if one.schema:  # means are rounded differently if the rows come in another order
        fills = [
            [np.nan if c.fill is None else c.fill for c in schema.columns] for schema in (one.schema, other.schema)
        ]
        np.testing.assert_allclose(*fills, rtol=1e-9, atol=1e-9)
    assert len(one) == len(other)
    for a, b in zip(one.trajectories, other.trajectories, strict=True):
        np.testing.assert_array_equal(a.observations, b.observations)
        np.testing.assert_array_equal(a.actions, b.actions)
        assert a.terminal == b.terminal
    if one.groups is not None:
        np.testing.assert_array_equal(one.groups, other.groups)
