"""The page of episodes: the data in it, its sentences, and how it behaves in a browser."""

import base64
import csv
import dataclasses
import json
import re

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from browsing import CONTRAST, FOCUS, NAMELESS, expand
from hypothesis import given
from hypothesis import strategies as st
from test_page import Elements, embedded

from sbil.api.view import view
from sbil.demonstrations import Column, Demonstrations, Schema, Trajectory
from sbil.errors import UserError
from sbil.networks import MLP, Dense
from sbil.policy import Policy
from sbil.reports import episodes
from sbil.reports.episodes import episodes_page, packed

PAYLOADS = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "'><svg onload=alert(1)>",
    "<!--<script>",
    "--><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "<iframe src=javascript:alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "<body onload=alert(1)>",
    "<b>bold</b>",
    "<details open ontoggle=alert(1)>",
    "<math><mtext></mtext></math>",
    "<base href=//evil.example>",
    "<link rel=stylesheet href=//evil.example>",
    "<meta http-equiv=refresh content=0>",
    "<form action=//evil.example><input autofocus onfocus=alert(1)>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;img src=x onerror=alert(1)&#62;",
    "$policy ${data} $$ {{7*7}}",
    "'';!--\"<XSS>=&{()}",
    "\u2028\u2029</style>",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "__proto__",
    "=cmd|' /C calc'!A0",
)


def demonstrations(lengths=(12, 30, 7, 18), names=("heart rate [bpm]", "lactate [mmol/L]", "dose"), actions=3):
    """Walks with values near 80, 2 and 0, except for one extreme heart rate in the second episode."""
    rng = np.random.default_rng(0)
    trajectories = []
    for index, length in enumerate(lengths):
        values = rng.normal(size=(length + index % 2, len(names))) * 0.1
        values[:, :2] += np.array([80.0, 2.0])[: len(names)]
        taken = np.arange(length) // (index + 2) % actions
        trajectories.append(Trajectory(values.astype(np.float32), taken.astype(np.int32), terminal=index % 2 == 0))
    if len(lengths) > 1 and lengths[1] > 4:
        trajectories[1].observations[4, 0] = 400.0
    return Demonstrations(tuple(trajectories), tuple(f"action {i}" for i in range(actions)), tuple(names))


def policy_for(data: Demonstrations, favourite: int = 0) -> Policy:
    """Always the same action, with probability 3/4 among three; every state is as familiar as half of the others."""
    logits = np.zeros(len(data.action_names))
    logits[favourite] = np.log(3 * (len(logits) - 1))
    network = MLP((Dense(jnp.zeros((len(data.observation_names), len(logits))), jnp.asarray(logits)),), "elu")
    return Policy(network, data.observation_names, data.action_names)


def unpacked(text: str) -> np.ndarray:
    """As the script does it."""
    kept = np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, 3)
    whole = np.concatenate([np.zeros((len(kept), 1), np.uint8), kept], axis=1)
    return np.array([float(f"{value:.4g}") for value in whole.view("<f4").ravel()])


# What is embedded


@given(st.lists(st.tuples(st.integers(-9999, 9999), st.integers(-20, 20)), max_size=20))
def test_numbers_of_four_digits_come_back(parts):
    values = [float(f"{digits}e{power}") for digits, power in parts]
    text = packed(np.array(values))
    assert len(text) == 4 * len(values)
    assert unpacked(text).tolist() == values


@given(st.lists(st.floats(-(2.0**127), 2.0**127, width=32, allow_subnormal=False), max_size=20))
def test_numbers_come_back_to_four_digits(values):
    np.testing.assert_allclose(unpacked(packed(np.array(values))), values, rtol=5.2e-4)


def test_the_largest_numbers_stay_finite():
    largest = float(np.finfo(np.float32).max)
    np.testing.assert_allclose(unpacked(packed(np.array([largest, -largest]))), [3.4e38, -3.4e38])


def test_the_data_are_those_of_the_episodes():
    data = demonstrations()
    page = embedded(episodes_page(dataclasses.replace(data, ids=("a", "b", "c", "d")), title="x"))
    assert [episode["id"] for episode in page["episodes"]] == ["a", "b", "c", "d"]
    assert [column["name"] for column in page["columns"]] == list(data.observation_names)
    assert [action["name"] for action in page["actions"]] == list(data.action_names)
    assert (page["key"], page["policy"]) == ("episode", False)
    for shown, trajectory in zip(page["episodes"], data.trajectories, strict=True):
        assert shown["length"] == len(trajectory)
        assert shown["actions"] == trajectory.actions.tolist()
        values = np.stack([unpacked(column) for column in shown["values"]], axis=1)
        np.testing.assert_allclose(values, trajectory.observations, rtol=5.1e-4)
        assert shown["end"] == ("terminal" if trajectory.terminal else "")
    assert [episode["changes"] for episode in page["episodes"]] == [5, 9, 1, 3]


def test_the_band_holds_nine_tenths_of_the_values_and_unusual_is_half_its_width_further():
    values = np.arange(101.0)
    values[100] = 146.0  # beyond the fence: the band ends at 95, and half its width is 45
    other = np.concatenate([np.zeros(100), [1.0]])  # nearly always one value: nothing is unusual
    whole = np.stack([values, other], axis=1).astype(np.float32)
    data = Demonstrations((Trajectory(whole, np.zeros(101, np.int32)),), ("a", "b"))
    page = embedded(episodes_page(data, title="x"))
    assert page["columns"][0] == {"name": "observation_0", "low": 5, "high": 95, "least": -40, "most": 140}
    assert (page["columns"][1]["least"], page["columns"][1]["most"]) == (None, None)
    assert page["episodes"][0]["unusual"] == pytest.approx(1 / 202, rel=1e-3)


def test_more_episodes_than_the_limit_are_evenly_chosen():
    data = demonstrations(lengths=(5,) * 101)
    text = episodes_page(data, title="x", limit=11)
    assert [episode["id"] for episode in embedded(text)["episodes"]] == [str(place) for place in range(0, 101, 10)]
    assert "11 of 101 episodes are in this page, evenly spaced." in text
    assert "evenly spaced" not in episodes_page(data, title="x", limit=101)
    assert len(embedded(episodes_page(data, title="x", limit=1))["episodes"]) == 1


def test_long_episodes_are_thinned_for_display_and_the_page_says_so():
    data = demonstrations(lengths=(2501, 100))
    text = episodes_page(data, title="x")
    long, short = embedded(text)["episodes"]
    assert (long["every"], len(long["actions"]), long["length"]) == (3, 834, 2501)
    assert long["actions"] == data.trajectories[0].actions[::3].tolist()
    np.testing.assert_allclose(unpacked(long["values"][0]), data.trajectories[0].observations[::3, 0], rtol=5.1e-4)
    assert (short["every"], len(unpacked(short["values"][0]))) == (1, 101)  # with the last state
    assert "Of 1 episode longer than 1,000 steps only every k-th step is drawn" in text
    assert long["changes"] == 1250  # over all


def test_a_large_page_keeps_its_size(monkeypatch):
    rng = np.random.default_rng(0)
    walks = rng.normal(size=(200, 200, 20)).astype(np.float32)
    data = Demonstrations(tuple(Trajectory(walk, np.zeros(200, np.int32)) for walk in walks), ("a", "b"))
    text = episodes_page(data, title="x")
    assert len(text.encode()) < 4e6
    assert all(episode["every"] == 1 for episode in embedded(text)["episodes"])
    monkeypatch.setattr(episodes, "NUMBERS", 100_000)
    smaller = episodes_page(data, title="x")
    assert len(smaller.encode()) < 8e5
    assert "only every k-th step is drawn" in smaller


def test_the_name_of_an_episode_comes_from_the_schema():
    columns = tuple(Column(name) for name in ("heart rate", "lactate", "dose"))
    schema = Schema("treatment", columns, episode="stay", time="hour")
    data = dataclasses.replace(demonstrations(lengths=(3, 2)), schema=schema)
    assert embedded(episodes_page(data, title="x"))["key"] == "stay"


GAPS = pl.DataFrame(
    {
        "stay": [2, 1, 1, 1, 2],
        "when": ["4 Jan 2026", "3 Jan 2026", "1 Jan 2026", "2 Jan 2026", "5 Jan 2026"],
        "pulse": [None, 90.0, 70.0, None, 60.0],
        "ward": ["a", "b", "a", None, "a"],
        "treat": ["none", "fluid", "none", "none", "none"],
    }
)
ROLES = {"episode": "stay", "time": "when", "action": "treat", "one_hot": ["ward"], "missing": "last"}


def test_times_and_filled_values_come_from_the_table(tmp_path):
    view(GAPS, tmp_path / "a.html", columns=ROLES)
    page = embedded((tmp_path / "a.html").read_text("utf-8"))
    one, two = page["episodes"]
    assert page["time"] == "when"
    assert (one["times"], two["times"]) == (["1 Jan 2026", "2 Jan 2026", "3 Jan 2026"], ["4 Jan 2026", "5 Jan 2026"])
    assert (one["filled"], two["filled"]) == ([[1], [1], [1]], [[0], [], []])
    assert [column["name"] for column in page["columns"]] == ["pulse", "ward=a", "ward=b"]


def test_a_table_without_times_and_gaps_has_no_marks(tmp_path):
    frame = GAPS.drop("when").with_columns(pl.col("pulse").fill_null(1), pl.col("ward").fill_null("a"))
    view(frame, tmp_path / "a.html", columns={**ROLES, "time": None, "missing": None})
    page = embedded((tmp_path / "a.html").read_text("utf-8"))
    assert "time" not in page
    assert not any({"times", "filled"} & {*episode} for episode in page["episodes"])


def test_long_episodes_keep_the_times_and_marks_of_the_steps_that_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(episodes, "LONGEST", 10)
    gap = [None if step in (4, 7, 9) else float(step) for step in range(25)]
    frame = pl.DataFrame({"stay": [1] * 25, "hour": range(25), "pulse": gap, "treat": ["a", "b", "a", "b", "b"] * 5})
    columns = {"episode": "stay", "time": "hour", "action": "treat", "missing": "mean"}
    view(frame, tmp_path / "a.html", columns=columns)
    (one,) = embedded((tmp_path / "a.html").read_text("utf-8"))["episodes"]
    assert one["times"] == [str(step) for step in range(0, 25, 3)]
    assert one["filled"] == [[3]]  # step 9; the others are not shown


def test_times_and_filled_values_are_drawn(opened, tmp_path):
    view(GAPS, tmp_path / "a.html", columns=ROLES)
    tab = opened((tmp_path / "a.html").as_uri())
    assert tab.locator("#rows .filled-in").first.get_attribute("d").count("M") == 1
    assert "when 1 Jan 2026" in tab.locator("#moment").inner_text()
    assert "filled in" not in tab.locator("#moment").inner_text()
    tab.locator("#steps").press("ArrowRight")
    assert "when 2 Jan 2026" in tab.locator("#moment").inner_text()
    assert "filled in: pulse, ward=a, ward=b" in tab.locator("#moment").inner_text()
    assert "filled" in tab.locator("#rows output").first.get_attribute("class")
    tab.set_viewport_size({"width": 320, "height": 740})
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.locator("#numbers summary").click()
    rows = tab.locator("#numbers tr").all_inner_texts()
    assert rows[0].split("\t")[:2] == ["step", "when"]
    assert "70 (filled in)" in rows[2]


def test_what_a_policy_would_do():
    data = demonstrations()
    page = embedded(episodes_page(data, title="x", policy=policy_for(data)))
    for shown, trajectory in zip(page["episodes"], data.trajectories, strict=True):
        assert shown["chosen"] == [0] * len(trajectory)
        np.testing.assert_allclose(unpacked(shown["probability"]), 0.75)
        assert shown["differs"] == pytest.approx((trajectory.actions != 0).mean(), rel=1e-3)
        assert "familiarity" not in shown
    known = dataclasses.replace(policy_for(data), energies=np.linspace(-10, 10, 1001))
    energy = float(known.energy(data.trajectories[0].observations[0]))
    page = embedded(episodes_page(data, title="x", policy=known))
    np.testing.assert_allclose(unpacked(page["episodes"][0]["familiarity"]), (10 - energy) / 20, atol=2e-3)


def test_the_page_says_what_the_data_are():
    text = episodes_page(demonstrations(), title="stays & co.csv")
    said = re.sub(r"<[^>]+>", "|", text[text.index("<h1") : text.index("<noscript>")])
    for words in (
        "|stays &amp; co.csv|",
        "|4 episodes, 67 decisions, 3 columns, 3 actions, 2 ended by themselves|",
        "|Shortest 7, median 15, longest 30 decisions.|",
        f"|{episodes.PRIVACY}|",
    ):
        assert words in said
    shares = [float(share) for share in re.findall(r"\|([\d.]+) %\|", said)]
    assert len(shares) == 3
    assert sum(shares) == pytest.approx(100, abs=0.2)


def test_the_histogram_counts_every_episode_once():
    text = episodes_page(demonstrations(lengths=(*range(1, 101), 100)), title="x")
    bars = re.findall(r"<title>([\d,]+)(?: to ([\d,]+))?: (\d+) episodes?</title>", text)
    assert sum(int(count) for *_, count in bars) == 101
    assert bars[0] == ("1", "5", "5")
    assert "Every episode has 1 decision." in episodes_page(single(), title="x")


def single() -> Demonstrations:
    return Demonstrations((Trajectory(np.ones((1, 1), np.float32), np.zeros(1, np.int32)),), ("only",))


def test_equal_demonstrations_give_equal_bytes():
    assert episodes_page(demonstrations(), title="x") == episodes_page(demonstrations(), title="x")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("observation_names", "bring the same columns in the same order"),
        ("action_names", "bring demonstrations of the same task"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(name, says):
    data = demonstrations()
    with pytest.raises(UserError, match=says):
        episodes_page(data, title="x", policy=dataclasses.replace(policy_for(data), **{name: ("a", "b", "c")}))


def test_images_are_refused():
    frames = np.zeros((3, 4, 4), np.uint8)
    with pytest.raises(UserError, match="images"):
        episodes_page(Demonstrations((Trajectory(frames, np.zeros(3, np.int32)),), ("a", "b"), stack=2), title="x")


# Nothing gets in, nothing is asked for


def named(*names: str) -> str:
    """A page in which each name is a column, an action, an episode and the title."""
    data = demonstrations(lengths=(6,) * len(names), names=names, actions=len(names))
    data = dataclasses.replace(data, action_names=names, ids=names)
    return episodes_page(data, title=names[0], policy=policy_for(data))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_names_stay_text(payload):
    clean, elements = Elements(named("a", "b")), Elements(named(payload, "b"))
    assert [tag for tag, _ in elements.found] == [tag for tag, _ in clean.found]
    assert not set("<>&") & set(elements.raw["application/json"])
    page = json.loads(elements.raw["application/json"])
    assert page["columns"][0]["name"] == page["actions"][0]["name"] == page["episodes"][0]["id"] == payload


def test_the_policy_lets_in_what_ships_and_nothing_else():
    text = episodes_page(demonstrations(), title="x")
    (policy,) = [a["content"] for _, a in Elements(text).found if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    for tag, attributes in Elements(text).found:
        assert tag not in ("img", "iframe", "object", "embed", "base", "form")
        assert not {name for name in attributes if name.startswith("on")} | ({"src", "style"} & set(attributes))
        assert (attributes.get("href") or "#").startswith(("#", "data:"))
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert not re.search(r"@import|url\(|\beval\(|innerHTML|insertAdjacent|document\.write", text)


# In a browser


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Four episodes beside a policy that knows its training states."""
    path = tmp_path_factory.mktemp("browser") / "view.html"
    data = dataclasses.replace(demonstrations(), ids=("s-10", "s-9", "t,8", "s-7"))
    policy = dataclasses.replace(policy_for(data), energies=np.linspace(-10, 10, 1001))
    path.write_text(episodes_page(data, title="stays.csv", policy=policy), "utf-8")
    return path.as_uri()


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "view.html").write_text(text, encoding="utf-8")
        return (tmp_path / "view.html").as_uri()

    return write


def ids(tab):
    return tab.locator("[role=option] .id").evaluate_all("(all) => all.map((one) => one.lastChild.textContent)")


def title(tab):
    return tab.locator("#episode-title").inner_text()


def now(tab):
    """The values at the chosen moment, by column."""
    return tab.locator("#rows output").all_inner_texts()


def test_the_first_episode_is_drawn(opened):
    tab = opened()
    assert ids(tab) == ["s-10", "s-9", "t,8", "s-7"]
    assert title(tab) == "episode s-10"
    assert tab.locator("#rows svg").count() == 3
    heights = tab.locator("#rows .value").evaluate_all("(all) => all.map((one) => one.getBBox().height)")
    assert all(height > 5 for height in heights)
    boxes = tab.locator("#steps .taken").evaluate_all("(all) => all.map((one) => one.getTotalLength() > 0)")
    assert boxes == [True] * 3
    first = demonstrations().trajectories[0].observations[0]
    assert [float(text.replace("−", "-")) for text in now(tab)] == pytest.approx(first.tolist(), rel=1e-3)
    assert "step 0" in tab.locator("#moment").inner_text()


def test_a_line_passes_through_its_values(opened):
    tab = opened()
    d = tab.locator("#rows .value").first.get_attribute("d")
    places = np.array([[float(part) for part in place.split(",")] for place in d[1:].split("L")])
    values = demonstrations().trajectories[0].observations[:, 0]
    np.testing.assert_allclose(places[:, 0], np.arange(12) / 12 * 1000, atol=0.1)  # the last decision lasts a step, too
    assert np.corrcoef(places[:, 1], values)[0, 1] < -0.999


def test_choosing_by_mouse_by_keyboard_and_by_buttons(opened):
    tab = opened()
    tab.locator("[role=option]").nth(2).click()
    assert title(tab) == "episode t,8"
    tab.locator("#list").focus()
    tab.keyboard.press("ArrowUp")
    assert title(tab) == "episode s-9"
    assert tab.locator("#list").get_attribute("aria-activedescendant") == "option-1"
    assert tab.locator("[aria-selected=true]").get_attribute("id") == "option-1"
    tab.keyboard.press("End")
    assert title(tab) == "episode s-7"
    tab.keyboard.press("ArrowDown")
    assert title(tab) == "episode s-7"
    assert tab.locator("#next").is_disabled()
    tab.locator("#previous").click()
    assert title(tab) == "episode t,8"


def test_searching(opened):
    tab = opened()
    tab.get_by_label("Find an episode").fill("S-")
    assert ids(tab) == ["s-10", "s-9", "s-7"]
    assert tab.locator("#found").inner_text() == "3 of 4 episodes"
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    assert title(tab) == "episode s-9"
    tab.get_by_label("Find an episode").fill("nowhere")
    assert ids(tab) == []
    assert tab.locator("#next").is_disabled()


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("by id", ["s-7", "s-9", "s-10", "t,8"]),
        ("longest first", ["s-9", "s-7", "s-10", "t,8"]),
        ("shortest first", ["t,8", "s-10", "s-7", "s-9"]),
        ("most changes of action", ["s-9", "s-10", "s-7", "t,8"]),
        ("most unusual values", ["s-9"]),
        ("most against the policy", None),
    ],
)
def test_sorting(opened, order, expected):
    tab = opened()
    tab.get_by_label("Order").select_option(order)
    if expected is None:
        differs = [(trajectory.actions != 0).mean() for trajectory in demonstrations().trajectories]
        expected = [["s-10", "s-9", "t,8", "s-7"][place] for place in np.argsort(differs)[::-1]]
    assert ids(tab)[: len(expected)] == expected


def test_the_moment_follows_the_pointer_and_the_arrow_keys(opened):
    tab = opened()
    second = demonstrations().trajectories[1]
    tab.locator("[role=option]").nth(1).click()
    steps = tab.locator("#steps")
    steps.focus()
    for _ in range(4):
        tab.keyboard.press("ArrowRight")
    assert steps.get_attribute("aria-valuenow") == "4"
    assert steps.get_attribute("aria-valuetext").startswith(
        "step 4; decided: action 1; policy: action 0, 0.75 (differs)"
    )
    assert now(tab)[0] == "400.0"
    assert tab.locator("output.far").count() == 1
    tab.keyboard.press("End")
    assert "after the last decision" in tab.locator("#moment").inner_text()  # its last state was recorded
    tab.keyboard.press("Home")
    assert steps.get_attribute("aria-valuenow") == "0"
    box = tab.locator("#rows .drawing").first.bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 10.5 / 30, box["y"] + 5)
    assert steps.get_attribute("aria-valuenow") == "10"
    assert float(now(tab)[1]) == pytest.approx(second.observations[10, 1], rel=1e-3)
    moved = tab.locator(".cursor").evaluate_all(
        "(all) => new Set(all.map((one) => one.getAttribute('transform'))).size"
    )
    assert moved == 1


def test_the_policy_is_drawn_beside_the_decisions(opened):
    tab = opened()
    assert tab.locator(".lanes").count() == 2
    d = tab.locator(".differs").get_attribute("d")
    assert d.count("M") == int((demonstrations().trajectories[0].actions != 0).sum())
    assert tab.locator(".area").count() == 1
    assert tab.locator("#with-policy").is_visible()


def test_flagging_and_saving(opened, tmp_path):
    tab = opened()
    assert tab.locator("#export").is_disabled()
    tab.locator("#flag").click()
    tab.locator("#list").focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("f")
    assert tab.locator("#flag").get_attribute("aria-pressed") == "true"
    assert tab.locator("#flagged").inner_text() == "2 episodes flagged"
    assert tab.locator(".flagmark:visible").count() == 2
    tab.get_by_label("Order").select_option("flagged first")
    assert ids(tab)[:2] == ["s-10", "t,8"]
    with tab.expect_download() as download:
        tab.locator("#export").click()
    assert download.value.suggested_filename == "flagged.csv"
    download.value.save_as(tmp_path / "flagged.csv")
    with open(tmp_path / "flagged.csv", newline="") as file:
        assert list(csv.reader(file)) == [["episode"], ["s-10"], ["t,8"]]
    assert tab.locator("#flagged").inner_text() == "2 episodes flagged, saved"
    tab.locator("#flag").click()
    assert tab.locator("#flagged").inner_text() == "1 episode flagged"


def test_columns_are_switched_on_and_off(opened):
    tab = opened()
    expand(tab)
    tab.get_by_role("checkbox", name="lactate [mmol/L]").uncheck()
    assert tab.locator("#rows .name").all_inner_texts() == ["heart rate", "dose"]
    assert tab.locator("#chosen").inner_text() == "Columns: 2 of 3 shown"
    tab.locator("#none").click()
    assert tab.locator("#rows svg").count() == 0
    tab.get_by_label("Find a column").fill("DOSE")
    tab.locator("#all").click()
    assert tab.locator("#rows .name").all_inner_texts() == ["dose"]
    tab.get_by_label("Find a column").fill("")
    tab.locator("#all").click()
    tab.locator("[role=option]").nth(1).click()
    tab.locator("#rows").wait_for()
    assert tab.locator("#rows .unusual").first.get_attribute("d").count("M") == 1


def test_the_numbers_are_there_as_a_table(opened):
    tab = opened()
    tab.locator("#numbers summary").click()
    rows = tab.locator("#numbers tr")
    assert rows.first.inner_text().split("\t")[:4] == ["step", "decision", "policy", "heart rate [bpm]"]
    assert rows.count() == 13
    assert rows.nth(3).inner_text().split("\t")[:3] == ["2", "action 1", "action 0"]
    tab.locator("#next").click()
    assert tab.locator("#numbers table").count() == 0


def test_sixty_columns_and_twelve_actions(opened, written):
    names = tuple(f"column {number}" for number in range(60))
    data = demonstrations(lengths=(40, 20), names=names, actions=12)
    tab = opened(written(episodes_page(data, title="x")))
    assert tab.locator("#rows svg").count() == 60
    assert tab.locator("#with-policy").is_hidden()
    assert tab.locator(".lane").count() == 12
    tab.locator("[role=option]").nth(1).click()
    assert tab.locator(".lane").count() == 7  # those of this episode
    expand(tab)
    tab.get_by_label("Unusual first").check()
    assert tab.locator("#rows .name").first.inner_text() == "column 0"
    tab.mouse.wheel(0, 2000)
    tab.wait_for_timeout(200)
    assert tab.evaluate("document.documentElement.scrollWidth") == 1280


def test_one_decision_makes_a_page(opened, written):
    tab = opened(written(episodes_page(single(), title="x")))
    assert tab.locator("#rows .single").count() == 1
    assert now(tab) == ["1"]
    tab.locator("#steps").focus()
    tab.keyboard.press("ArrowRight")
    assert tab.locator("#steps").get_attribute("aria-valuenow") == "0"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(opened, scheme):
    tab = opened(color_scheme=scheme)
    expand(tab)
    tab.locator("[role=option]").nth(1).click()
    tab.locator("#flag").click()
    expand(tab)
    tab.locator("#steps").focus()
    for _ in range(4):
        tab.keyboard.press("ArrowRight")
    found = tab.evaluate(CONTRAST)
    assert found["count"] > 100
    assert found["low"] == []


def test_dark_and_light(opened):
    tab = opened(color_scheme="light")
    back = "getComputedStyle(document.body).backgroundColor"
    before = tab.evaluate(back)
    tab.get_by_role("button", name="Dark").click()
    assert tab.evaluate(back) != before


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_the_page_never_scrolls_sideways(opened, width):
    tab = opened(viewport={"width": width, "height": 740})
    expand(tab)
    tab.locator("[role=option]").nth(1).click()
    expand(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.locator("#rows .drawing").first.bounding_box()["width"] > 90


def test_every_control_has_a_name_and_the_page_its_landmarks(opened):
    tab = opened()
    expand(tab)
    assert tab.evaluate(NAMELESS) == []
    for role in ("banner", "navigation", "main", "contentinfo", "listbox", "slider"):
        assert tab.get_by_role(role).count() == 1
    levels = tab.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((head) => Number(head.tagName[1]))")
    assert levels == [1, 2, 2, 2, 2]


def test_all_can_be_reached_and_the_focus_is_seen(opened):
    tab = opened()
    reached = set()
    while "steps" not in reached:
        tab.keyboard.press("Tab")
        name, seen = tab.evaluate(FOCUS)
        assert seen, name
        assert name != "BODY", reached
        reached.add(name)
    assert {"skip", "theme", "search", "order", "list", "next", "flag", "steps"} <= reached


def test_names_from_files_stay_text(opened, written):
    tab = opened(written(named(*PAYLOADS)))
    expand(tab)
    for place in range(0, len(PAYLOADS), 3):
        tab.locator("[role=option]").nth(place).click()
    expand(tab)
    tab.get_by_label("Order").select_option("by id")
    assert tab.locator("img, iframe, form, base, b, math, [onerror], [onload], [onfocus], [ontoggle]").count() == 0
    assert tab.locator("script").count() == 2
    for payload in PAYLOADS[:3]:
        assert tab.get_by_text(payload).count() > 2


def test_it_says_something_without_scripts(browser, address):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(address)
    assert "4 episodes, 67 decisions" in tab.locator("#data-shown").inner_text()
    assert tab.locator(".key li").count() == 3
    assert tab.locator("#browser").is_hidden()
    context.close()
