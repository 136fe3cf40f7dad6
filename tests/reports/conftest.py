"""What the tests of tables, of figures and of pages share."""

import shutil

import pytest

from handmade import BASE, result
from sbil.experiments import Result

QUIET = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run")


@pytest.fixture
def results() -> list[Result]:
    return [
        result("bc", 1, BASE),
        result("bc", 3, BASE + 0.1),
        result("edm", 1, BASE + 0.1),
        result("edm", 3, BASE - 0.2, diverged=3),
    ]


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, address):
    """Open the page with the network off; whatever it complains of or asks for afterwards fails the test."""
    contexts, troubles = [], []

    def open_it(address=address, **options):
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **options}
        )
        context.set_offline(True)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(5000)
        tab.on("console", lambda message: troubles.append(message.text))
        tab.on("pageerror", lambda error: troubles.append(str(error)))
        tab.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        tab.on("request", lambda request: request.url == address or troubles.append(request.url))
        tab.add_init_script(
            "document.addEventListener('securitypolicyviolation', (e) => console.error(e.violatedDirective))"
        )
        tab.goto(address)
        return tab

    yield open_it
    for context in contexts:
        context.close()
    assert troubles == []
