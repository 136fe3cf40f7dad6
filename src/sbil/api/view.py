"""Write the page of episodes to a file: what `sbil view` does."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbil import files
from sbil.demonstrations import Demonstrations
from sbil.demonstrations.reading import read_with_notes
from sbil.errors import UserError, flag, whole
from sbil.evaluation.imagined import imagined_or_why
from sbil.policy import Policy
from sbil.policy.outputs import must_be_free
from sbil.reports.episodes import episodes_page


@dataclass(frozen=True)
class View:
    """The page that was written: its file and size, and how many episodes and decisions there are."""

    file: Path
    bytes: int
    episodes: int
    shown: int
    decisions: int

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "file": str(self.file)}


def view(
    data: Any,
    out: str | Path,
    *,
    policy: Policy | str | Path | None = None,
    imagine: bool = False,
    episodes: int = 200,
    overwrite: bool = False,
    columns: Mapping[str, Any] | None = None,
) -> View:
    """Write one HTML page to look at episodes: values and decisions over time.

        sbil.view("stays.csv", "view.html", columns={"episode": "stay", "time": "hour", "action": "treatment"})

    data: Demonstrations, or what `sbil.read` takes.
    out: the page. It holds recorded values.
    policy: a policy, or the path of its folder; the page shows its decisions beside the recorded ones.
    imagine: learn from the data what follows a decision, let the policy act in that model, and show where it would go.
    episodes: the largest number of episodes in the page. If there are more, evenly spaced ones are taken.
    overwrite: replace the page if it exists.
    columns: what the columns of a table mean, as keywords of `sbil.read`; default: as the policy was trained.
    """
    out = Path(out)
    episodes, imagine = whole("episodes", episodes, 1), flag("imagine", imagine)
    if imagine and policy is None:
        raise UserError("imagine shows where a policy would go; give the policy too.")
    must_be_free(out, overwrite, (data,))
    if out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{out}: the page is written as HTML; name the file something.html.")
    policy = policy if isinstance(policy, Policy | None) else Policy.load(policy)
    title = Path(data).name or str(data) if isinstance(data, str | Path) else "episodes"
    notes = None
    if not isinstance(data, Demonstrations):
        data, notes = read_with_notes(data, **{"schema": policy.schema if policy else None, **(columns or {})})
    going = imagined_or_why(policy, data) if policy and imagine else None
    page = episodes_page(data, title=title, limit=episodes, policy=policy, going=going, notes=notes)
    files.write_text(out, page)
    return View(out, len(page.encode()), len(data), min(episodes, len(data)), data.steps)
