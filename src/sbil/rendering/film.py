"""A short film of policies that play side by side, from the same seed, in the simulator itself.

Each episode is played twice: first to know its length, then to draw it, with the same actions. Only the frames that are
shown are kept.
"""

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sbil.environments.base import Environment
from sbil.errors import UserError
from sbil.rendering.stage import Episode, Player, number, play, simulator_for

SHORTEST, LONGEST = 1.0, 60.0  # seconds of film
FASTEST = 25.0  # frames per second of film
HOLD = 1.5  # seconds that the last frame stays; less in a very short film
PANEL = (320, 240)  # the largest size of a picture
CAPTION, FOOTER, MARGIN = 42, 20, 8
LARGE, SMALL = 13, 11  # of the letters
PLAIN, BOLD = "DejaVuSans", "DejaVuSans-Bold"  # fonts that come with matplotlib
COLOURS = 96
INK, QUIET, PAPER = (20, 20, 20), (90, 90, 90), (236, 236, 236)

Colour = tuple[int, int, int]
Progress = Callable[[float, str], None]  # the share that is done, and what is being done


def silent(done: float, note: str) -> None:
    """Tell nobody."""


class Cut(NamedTuple):
    """Which steps are shown, and for how long."""

    every: int  # every k-th step is shown
    frames: int
    duration: int  # of a frame, in milliseconds
    last: int  # of the last frame, in milliseconds
    speed: float  # 1: as fast as in life

    @property
    def seconds(self) -> float:
        return ((self.frames - 1) * self.duration + self.last) / 1000

    def __str__(self) -> str:
        speed = "real speed" if self.speed < 1.15 else f"{self.speed:.1f}".removesuffix(".0") + " times real speed"
        return speed + (f", 1 step of {self.every} shown" if self.every > 1 else "")


@dataclass(frozen=True, eq=False)
class Film:
    """A finished film: the GIF, who plays in it from which seed, their episodes, and how it was cut."""

    content: bytes
    environment: str
    seed: int
    players: list[Player]
    episodes: list[Episode]  # one per player
    cut: Cut

    def as_json(self) -> dict[str, Any]:
        return {
            "bytes": len(self.content),
            "seconds": self.cut.seconds,
            "speed": round(self.cut.speed, 2),
            "every": self.cut.every,
            "environment": self.environment,
            "seed": self.seed,
            "players": [
                {"name": player.name, "mode": player.mode, "return": episode.total, "steps": episode.steps}
                for player, episode in zip(self.players, self.episodes, strict=True)
            ],
        }


def make_film(
    environment: Environment, players: Sequence[Player], seed: int, seconds: float, progress: Progress = silent
) -> Film:
    """Play one episode of each player from `seed` and make a GIF of them that lasts at most `seconds`."""
    if not SHORTEST <= seconds <= LONGEST:
        raise UserError(f"a film lasts from {SHORTEST:g} to {LONGEST:g} seconds; got {seconds:g}.")
    if not 0 <= seed < 2**31:
        raise UserError(f"the seed of an episode is a whole number from 0 to {2**31 - 1}; got {seed}.")
    phases = 2 * len(players) + 1

    def phase(index: int, note: str) -> Callable[[float], None]:
        return lambda share: progress((index + share) / phases, note)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the simulators' packages warn about each other when imported
        episodes = [
            play(environment, player, seed, phase(i, f"{player.name} plays")) for i, player in enumerate(players)
        ]
        cut = cut_to(seconds, max(episode.steps for episode in episodes), episodes[0].rate)
        panels = []
        for i, (player, episode) in enumerate(zip(players, episodes, strict=True), len(players)):
            pictures = _pictures(environment, seed, episode, cut, phase(i, f"{player.name} is filmed"))
            panels.append(Panel(player, episode, pictures))
    what, width = f"{environment.name}, seed {seed}", sum(panel.pictures[0].width for panel in panels)
    line = f"{what}: {cut}"
    footer = [line] if _font(PLAIN, SMALL).getlength(line) <= width else [what, str(cut)]
    content = _gif(panels, cut, footer, phase(2 * len(players), "drawing"))
    return Film(content, environment.name, seed, list(players), episodes, cut)


def cut_to(seconds: float, steps: int, rate: float) -> Cut:
    """Real speed if the longest episode fits into `seconds`; otherwise as much faster as needed."""
    real = ceil(rate / FASTEST)  # steps per frame at real speed
    duration = round(100 * real / rate) * 10  # GIF counts hundredths of a second
    last = round(100 * min(HOLD, seconds / 4)) * 10
    room = int((seconds * 1000 - last) // duration) + 1
    every = max(real, ceil(steps / max(room - 1, 1)))
    frames = 1 + ceil(steps / every)
    return Cut(every, frames, duration, last, every / rate * 1000 / duration)


def _pictures(
    environment: Environment, seed: int, episode: Episode, cut: Cut, progress: Callable[[float], None]
) -> list[Any]:
    """The frames of an episode at the steps shown, its end always among them."""
    with closing(simulator_for(environment, filming=True)) as simulator:
        simulator.reset(seed)
        shown = [_fitted(simulator.picture())]
        for step, (action, reward) in enumerate(zip(episode.actions, episode.rewards, strict=True), 1):
            if simulator.step(int(action))[1] != reward:
                raise RuntimeError(f"{environment.name} did not repeat itself when filmed (step {step}, seed {seed})")
            picture = simulator.picture()  # each step: fumes that are drawn age with each picture
            if step % cut.every == 0 or step == episode.steps:
                shown.append(_fitted(picture))
                progress(step / episode.steps)
    return shown


def _fitted(picture: Any) -> Any:
    """A picture in the size of a panel, never enlarged."""
    picture.thumbnail(PANEL, Image.Resampling.BOX, reducing_gap=None)
    return picture


class Panel(NamedTuple):
    """One player's part of the film."""

    player: Player
    episode: Episode
    pictures: list[Any]

    def at(self, index: int, every: int) -> tuple[Any, str]:
        """The picture of a frame of the film and the words above it; the last ones stay."""
        steps = min(index * every, self.episode.steps)
        picture = self.pictures[min(index, len(self.pictures) - 1)]
        if steps == self.episode.steps:
            return picture, f"done: return {self.episode}"
        return picture, f"step {steps}, return {number(float(self.episode.rewards[:steps].sum()))}"


def _gif(panels: Sequence[Panel], cut: Cut, footer: Sequence[str], progress: Callable[[float], None]) -> bytes:
    """All frames in one palette, so that points which do not change take no room."""
    sample = [_frame(panels, index, cut, footer) for index in np.linspace(0, cut.frames - 1, 12, dtype=int)]
    mosaic = Image.fromarray(np.concatenate([np.asarray(frame) for frame in sample]))
    palette = mosaic.quantize(COLOURS, Image.Quantize.MAXCOVERAGE)

    def frames() -> Iterator[Any]:
        for index in range(cut.frames):
            progress(index / cut.frames)
            yield _frame(panels, index, cut, footer).quantize(palette=palette, dither=Image.Dither.NONE)

    drawn = frames()
    first = next(drawn)
    buffer = io.BytesIO()
    durations = [cut.duration] * (cut.frames - 1) + [cut.last]
    first.save(buffer, "GIF", save_all=True, append_images=drawn, duration=durations, loop=0, disposal=1)
    return buffer.getvalue()


def _frame(panels: Sequence[Panel], index: int, cut: Cut, footer: Sequence[str]) -> Any:
    widths = [panel.pictures[0].width for panel in panels]
    height = CAPTION + max(panel.pictures[0].height for panel in panels) + FOOTER * len(footer)
    frame = Image.new("RGB", (sum(widths) + MARGIN * (len(panels) + 1), height), PAPER)
    draw = ImageDraw.Draw(frame)
    left = MARGIN
    for panel, width in zip(panels, widths, strict=True):
        picture, words = panel.at(index, cut.every)
        _write(draw, (left, 4), panel.player.name, width, _font(BOLD, LARGE), tail=f", {panel.player.mode}")
        _write(draw, (left, 22), words, width, _font(PLAIN, LARGE))
        frame.paste(picture, (left, CAPTION))
        left += width + MARGIN
    for line, words in enumerate(reversed(footer), 1):
        place = MARGIN, height - line * FOOTER + 3
        _write(draw, place, words, frame.width - 2 * MARGIN, _font(PLAIN, SMALL), QUIET)
    return frame


def _write(
    draw: Any, place: tuple[int, int], text: str, width: int, font: Any, ink: Colour = INK, tail: str = ""
) -> None:
    """Write text; shorten it, but not its tail, if there is no room for it."""
    line = text + tail
    while text and draw.textlength(line, font=font) > width:
        text = text[:-1]
        line = f"{text.rstrip()}…{tail}"
    draw.text(place, line, fill=ink, font=font)


@cache
def _font(name: str, size: int) -> Any:
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"), size)
