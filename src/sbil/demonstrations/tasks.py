"""What can be asked about a table, by name: so that it can be asked of another process."""

from pathlib import Path
from typing import Any

from sbil.demonstrations import convert, profile
from sbil.demonstrations.roles import Roles
from sbil.demonstrations.schema import Schema
from sbil.demonstrations.table import Table
from sbil.errors import UserError


def run(request: dict[str, Any], table: Table, folder: Path) -> dict[str, Any]:
    """Answer a request about a table; arrays are left in `folder`."""
    try:
        if request["task"] == "read":
            return convert.demonstrations(table, Roles.from_json(request["roles"]), folder, request["exclude"])
        if request["task"] == "observe":
            return convert.rows(table, Schema.from_json(request["schema"]), folder)
        return profile.profile(table, Roles.from_json(request["roles"]), request["exclude"])
    except UserError as error:
        placed = any(str(error).startswith(name) for name in request["files"] or [request["name"]])
        raise (error if placed else UserError(f"{request['name']}: {error}")) from None
