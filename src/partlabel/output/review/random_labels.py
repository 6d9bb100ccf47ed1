"""The random labels of all classes: their plans, draws and answers, kept in the journal."""

import hashlib
import time
from collections import Counter
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from partlabel.base.errors import FileError
from partlabel.base.files import atomic_file
from partlabel.output.review.audit import Audit, Plan
from partlabel.output.review.review_labels import ReviewLabels
from partlabel.output.review.standing import Standings
from partlabel.output.review.verdict_journal import Journal
from partlabel.output.review.verdicts import Draw, Verdict


class RandomLabels:
    """Draws labels at random, and knows what the answers show.

    Args:
        labels: all labels.
        standings: what reviewers say.
        journal: where plans and draws are kept.
        folder: for the scores that plans were made of.
        seed: of the draws.
    """

    def __init__(
        self,
        labels: ReviewLabels,
        standings: Standings,
        journal: Journal,
        folder: Path,
        seed: int,
    ) -> None:
        self.labels, self.standings, self.journal = labels, standings, journal
        self.folder, self.seed = folder, seed
        self._audits: dict[str, Audit] = {}
        self._plans = journal.plans()
        self.draws: dict[str, list[Draw]] = {}
        """The labels that were drawn, by class."""
        for draw in journal.draws():
            self.draws.setdefault(draw.name, []).append(draw)

    def audit(self, name: str) -> Audit | None:
        """The random labels of a class; None if there are no scores to test."""
        if name not in self._audits:
            plan = self._plan(name)
            if plan is None:
                return None
            audit = Audit(plan)
            for draw in self.draws.get(name, []):
                if draw.plan == plan.id:
                    row = self.labels.row_of[draw.image]
                    audit.add(row, draw.stratum)
                    audit.answer(row, self.standings.entries(name, draw.image))
            self._audits[name] = audit
        return self._audits[name]

    def drawn(self, name: str) -> Audit | None:
        """The random labels of a class; None if none was ever drawn."""
        return self.audit(name) if name in self.draws else None

    def waits(self, name: str, row: int) -> bool:
        """Whether a label was drawn and has no answer."""
        audit = self.drawn(name)
        return audit is not None and audit.waits(row)

    def draw_of(self, name: str, row: int) -> Draw | None:
        """The draw of a label that waits for an answer; None for all others."""
        audit = self.drawn(name)
        if audit is None or not audit.waits(row):
            return None
        image = self.labels.images[row]
        own = (one for one in reversed(self.draws[name]) if one.plan == audit.plan.id)
        return next(one for one in own if one.image == image)

    def notice(self, verdict: Verdict) -> None:
        """Take in that reviewers changed what they say about a label."""
        audit, row = self._audits.get(verdict.name), self.labels.row_of[verdict.image]
        if audit is not None and row in audit.drawn:
            audit.answer(row, self.standings.entries(verdict.name, verdict.image))

    def next(self, name: str, number: int) -> list[int]:
        """Rows of random labels: first those that wait for an answer, then new ones."""
        audit = self.audit(name)
        if audit is None or not number:
            return []
        rows = audit.open[:number]
        new, now = [], time.time()
        numbers = Counter(audit.drawn.values())
        chosen = audit.next(
            self.labels.opinions.precision, self.labels.image_keys, number - len(rows)
        )
        for row, stratum in chosen:
            numbers[stratum] += 1
            size = int(audit.plan.sizes[stratum])
            image = self.labels.images[row]
            new.append(Draw(audit.plan.id, name, image, stratum, numbers[stratum], size, now))
        if new:
            self.journal.add_draws(new)
            for draw, (row, stratum) in zip(new, chosen, strict=True):
                self.draws.setdefault(name, []).append(draw)
                audit.add(row, stratum)
        return rows + [row for row, _ in chosen]

    def _plan(self, name: str) -> Plan | None:
        unknown = self.labels.known(name) == 0
        scores = self.labels.run_scores(name)
        if scores is not None:
            content = scores.tobytes() + unknown.tobytes()
            id = hashlib.blake2b(content, digest_size=8).hexdigest()
            return Plan(id, scores, unknown, self.seed)
        if name not in self._plans:
            return None
        id = self._plans[name]
        return Plan(id, self._stored_scores(id, name), unknown, self.seed)

    def _stored_scores(self, id: str, name: str) -> NDArray[np.float32]:
        """[n] the scores that a plan was made of; its id is their hash."""
        path = self._plan_file(id)
        try:
            with path.open("rb") as stream:
                scores: NDArray[np.float32] = np.load(stream, allow_pickle=False)
            if scores.shape != (len(self.labels.images),) or _plan_id(scores, name) != id:
                raise ValueError("not the scores that the plan was made of")
        except (OSError, ValueError, EOFError, AttributeError, BadZipFile) as error:
            raise FileError(path, f"damaged ({error})") from error
        return scores

    def _plan_file(self, id: str) -> Path:
        return self.folder / f"plan-{id}.npy"

    def start(self, name: str, scores: NDArray[np.float32]) -> None:
        """Fix the scores of a class that the run does not know, and draw by them from now on."""
        id = _plan_id(scores, name)
        if self._plans.get(name) == id:
            return
        with atomic_file(self._plan_file(id)) as stream:
            np.save(stream, scores)
        self.journal.add_plan(id, name, time.time())
        self._plans[name] = id
        self._audits.pop(name, None)


def _plan_id(scores: NDArray[np.float32], name: str) -> str:
    return hashlib.blake2b(scores.tobytes() + name.encode(), digest_size=8).hexdigest()
