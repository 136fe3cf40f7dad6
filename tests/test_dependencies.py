"""Every package that the code imports is declared in pyproject.toml, where a person who needs it installs it."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OURS = {"sbil", "studies", "benchmarks", *(path.stem for path in (ROOT / "tests").rglob("*.py"))}
# A package that an extra of another project installs.
BROUGHT_BY = {"box2d": "gymnasium"}


def distribution(requirement: str) -> str:
    """The name of a distribution as PyPI compares it, without extras and versions."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement)[0]).lower()


def declared(*extras: str) -> set[str]:
    """The distributions of a plain install and of these extras."""
    wanted, found = list(extras), {distribution(each) for each in PROJECT["dependencies"]}
    while wanted:
        for requirement in EXTRAS[wanted.pop()]:
            if requirement.startswith("sbil["):
                wanted += requirement[5:-1].split(",")
            else:
                found.add(distribution(requirement))
    return found


@cache
def homes() -> dict[str, str]:
    """The distribution that each installed module comes from."""
    return {module: distribution(names[0]) for module, names in packages_distributions().items()}


def imports(path: Path, inside_functions: bool) -> set[str]:
    """The modules that a file imports: when it is loaded, or also when its functions are called."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        if isinstance(node, ast.FunctionDef) and not inside_functions:
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


def distributions(modules: set[str]) -> set[str]:
    """The distributions that these modules come from, without Python's own and ours."""
    names = {module.split(".")[0] for module in modules} - OURS - sys.stdlib_module_names
    found = {homes().get(name, distribution(name)) for name in names}
    return {BROUGHT_BY.get(name, name) for name in found}


def file_of(module: str) -> Path | None:
    """The file of one of our modules, or None."""
    start = ROOT / "src" / module.replace(".", "/")
    return next((path for path in (start / "__init__.py", start.with_suffix(".py")) if path.is_file()), None)


def loaded_with(paths: list[Path]) -> set[Path]:
    """These files of ours and all that are loaded with them."""
    waiting, found = list(paths), set()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += filter(None, map(file_of, imports(path, inside_functions=False)))
    return found


USED = (
    ("src", [name for name in EXTRAS if name not in ("bench", "test", "dev", "docs")]),
    ("tests", ["dev"]),
    ("studies", ["dev", "experts"]),
    ("benchmarks", ["dev", "bench"]),
    ("examples", []),
)


@pytest.mark.parametrize(("folder", "extras"), USED, ids=[folder for folder, _ in USED])
def test_what_is_imported_is_declared(folder, extras):
    files = list((ROOT / folder).rglob("*.py"))
    assert files
    missing = {path.name: distributions(imports(path, inside_functions=True)) - declared(*extras) for path in files}
    assert not {name: packages for name, packages in missing.items() if packages}


def test_a_plain_install_is_enough():
    """Commands and public names load nothing that an extra brings: that is loaded where it is used."""
    commands = [path for room in ("cli", "api") for path in (ROOT / "src" / "sbil" / room).glob("*.py")]
    listed = (ROOT / "src" / "sbil" / "__init__.pyi").read_text()
    public = filter(None, map(file_of, re.findall(r"^from (\S+) import", listed, re.MULTILINE)))
    loaded = loaded_with([*commands, *public])
    needed = {path.name: distributions(imports(path, inside_functions=False)) for path in loaded}
    assert "jax" in set.union(*needed.values())
    assert not {name: packages - declared() for name, packages in needed.items() if packages - declared()}
