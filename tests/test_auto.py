"""The method auto: folds, criterion, selection, and whole runs on generated images."""

import itertools
import math
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import partlabel
from partlabel.base.errors import InputError, JobError, PartlabelWarning
from partlabel.cli import main
from partlabel.labels import LabelTable, simulate
from partlabel.labels.formats import read_labels, write_labels
from partlabel.metrics.positive_ranking import has_enough, image_ranks, positive_auc
from partlabel.models import Reduction
from partlabel.models.heads import Branch, Ensemble, Linear, Saliency, merge_linear
from partlabel.training import trainer
from partlabel.training.arguments import effective, make_settings, write_config
from partlabel.training.auto import greedy
from partlabel.training.auto.comparison import Comparison
from partlabel.training.auto.criterion import Criterion, fairly_known
from partlabel.training.auto.folds import make_folds
from partlabel.training.auto.held_features import FeatureKind
from partlabel.training.auto.leaderboard import Line, as_text, command_for, read_leaderboard
from partlabel.training.auto.leaderboard import write_leaderboard as write_lines
from partlabel.training.auto.portfolio import DECAYS, Candidate, Recipe, make_portfolio
from partlabel.training.auto.search import Search
from partlabel.training.auto.teaching import missing_positives, with_likely_positives
from partlabel.training.auto.trials import Laboratory, Part, evidence_for
from partlabel.training.checkpoint import load_state, same
from partlabel.training.run import Run

TINY: dict[str, Any] = {"backbone": "test_efficientnet", "weights": "none", "size": 64}


def table_of(matrix: NDArray[Any]) -> LabelTable:
    ids = [f"i{n}" for n in range(len(matrix))]
    return LabelTable(ids, [f"c{j}" for j in range(matrix.shape[1])], matrix)


def random_table(seed: int, images: int = 80, classes: int = 6) -> LabelTable:
    rng = np.random.default_rng(seed)
    values = rng.choice([-1, 0, 0, 0, 1], size=(images, classes))
    values[:, 0] = 0
    values[rng.permutation(images)[:5], 0] = 1  # a class with as many positives as folds
    return table_of(values)


# -- folds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_every_kind_of_label_is_in_every_fold(seed: int) -> None:
    table = random_table(seed)
    folds, values = make_folds(table, 5, seed), table.dense()
    for column, sign in itertools.product(range(values.shape[1]), (1, -1)):
        rows = values[:, column] == sign
        spread = np.bincount(folds[rows], minlength=5)
        assert spread.min() > 0 or rows.sum() < 5, (column, sign, spread)


def test_folds_are_of_similar_size_and_deterministic() -> None:
    table = random_table(3)
    folds = make_folds(table, 5, seed=1)
    assert np.array_equal(folds, make_folds(table, 5, seed=1))
    assert not np.array_equal(folds, make_folds(table, 5, seed=2))
    sizes = np.bincount(folds, minlength=5)
    assert sizes.sum() == len(table)
    assert sizes.max() - sizes.min() <= 6


def test_folds_of_images_without_labels_are_of_equal_size() -> None:
    folds = make_folds(table_of(np.zeros((23, 2), dtype=int)), 5, seed=0)
    assert sorted(np.bincount(folds)) == [4, 4, 5, 5, 5]


# -- the criterion ---------------------------------------------------------------------------------


def brute_auc(scores: NDArray[Any], present: NDArray[Any]) -> float:
    pairs = list(itertools.product(scores[present], scores[~present]))
    if not pairs:
        return math.nan
    return float(np.mean([(high > low) + 0.5 * (high == low) for high, low in pairs]))


def test_auc_of_positives_is_a_share_of_pairs() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 6, size=(40, 5)) / 5  # with ties
    labels = rng.choice([-1, 0, 1], size=(40, 5))
    labels[:, 3] = 0
    labels[:, 4] = 1
    expected = [brute_auc(scores[:, j], labels[:, j] == 1) for j in range(5)]
    assert positive_auc(scores, labels) == pytest.approx(expected, nan_ok=True)


def test_positives_rank_among_the_classes_of_their_image() -> None:
    rng = np.random.default_rng(3)
    scores = rng.integers(0, 6, size=(20, 5)) / 5  # with ties
    labels = rng.choice([-1, 0, 0, 1], size=(20, 5))
    labels[2] = 1  # an image without other classes

    def share(own: float, others: NDArray[Any]) -> float:
        return float(np.mean((others < own) + 0.5 * (others == own))) if len(others) else math.nan

    expected = [
        share(scores[i, j], scores[i][labels[i] < 1])
        for i, j in zip(*np.nonzero(labels == 1), strict=True)
    ]
    assert image_ranks(scores, labels) == pytest.approx(expected, nan_ok=True)


def test_without_absent_labels_the_criterion_is_the_rank_of_positives() -> None:
    labels = np.array([[1, 0], [0, 1], [0, 0], [1, 0]], dtype=np.int8)
    criterion = Criterion(labels, "x")
    assert criterion.name == "rank of positives"
    assert "holdout" in criterion.describe()
    perfect = labels.astype(np.float32)
    assert criterion(perfect).tolist() == [1.0, 1.0]
    worse = np.array([[1, 2], [0, 1], [2, 0], [1, 0]], dtype=np.float32)
    absent = np.where(labels > 0, 1, -1)
    figures = [partlabel.metrics.evaluate(worse, absent)["mAP"], image_ranks(worse, labels).mean()]
    assert criterion(worse).tolist() == pytest.approx(figures)


def test_with_both_kinds_the_criterion_is_average_precision() -> None:
    rng = np.random.default_rng(1)
    labels = rng.choice([-1, 1], size=(30, 3)).astype(np.int8)
    labels[:, 2] = 0
    labels[:2, 2] = [1, -1]  # too few to compare on
    logits = rng.normal(size=(30, 3)).astype(np.float32)
    figures = Criterion(labels, "x")(logits)
    assert Criterion(labels, "x").name == "mAP"
    expected = partlabel.metrics.evaluate(logits, labels).per_class["AP"]
    assert figures[:2] == pytest.approx(expected[:2])
    assert math.isnan(figures[2])
    assert has_enough(labels, 3).tolist() == [True, True, False]


def test_images_with_present_labels_only_do_not_count_beside_fully_labelled_ones() -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice([-1, -1, -1, 1], size=(60, 4))
    truth[:, 0] = 1 - 2 * (np.arange(60) % 2)
    values = np.where(np.arange(60)[:, None] < 20, truth, (truth > 0) & (rng.random((60, 4)) < 0.5))
    kept = fairly_known(table_of(values)).dense()
    assert np.array_equal(kept[:20], values[:20])
    assert not kept[20:].any()
    both = table_of(np.where(rng.random((60, 4)) < 0.3, truth, 0))
    assert np.array_equal(fairly_known(both).dense(), both.dense())


# -- the ensemble ----------------------------------------------------------------------------------


def criterion_for(truth: NDArray[Any]) -> greedy.Criterion:
    def criterion(logits: Any, rows: Any = None) -> NDArray[np.float64]:
        return positive_auc(logits, truth if rows is None else truth[rows])

    return criterion


def noisy_models(seed: int, number: int) -> tuple[NDArray[Any], list[NDArray[np.float32]]]:
    rng = np.random.default_rng(seed)
    truth = rng.choice([0, 1], size=(60, 8))
    models = [
        (truth + (1 + n / 2) * rng.normal(size=truth.shape)) * (1 + 9 * n) for n in range(number)
    ]
    return truth, [model.astype(np.float32) for model in models]


def test_each_step_of_the_selection_is_the_best_one() -> None:
    truth, models = noisy_models(0, 4)
    criterion = criterion_for(truth)
    scaled = [model / model.std() for model in models]
    picked = greedy.add_models(scaled, criterion)

    def score(picks: list[int]) -> float:
        return float(np.mean(criterion(np.sum([scaled[p] for p in picks], axis=0), None)))

    picks = [max(range(4), key=lambda n: score([n]))]
    while len(picks) < 10:
        best = max(range(4), key=lambda n: score([*picks, n]))
        if score([*picks, best]) < score(picks) + 1e-4:
            break
        picks.append(best)
    assert picked == picks
    assert len(set(picks)) > 1


def test_an_ensemble_is_better_than_its_best_member() -> None:
    truth, models = noisy_models(2, 5)
    criterion = criterion_for(truth)
    weights = greedy.choose_weights(models, criterion, most=5)
    assert weights.sum() == pytest.approx(1)
    total = np.sum([w * m / m.std() for w, m in zip(weights, models, strict=True)], axis=0)
    best = max(greedy.mean_of(criterion(model, None)) for model in models)
    assert greedy.mean_of(criterion(total, None)) > best
    assert weights.tolist() == greedy.choose_weights(models, criterion, most=5).tolist()


def test_an_ensemble_has_at_most_so_many_members() -> None:
    truth, models = noisy_models(1, 5)
    assert np.count_nonzero(greedy.choose_weights(models, criterion_for(truth), most=2)) == 2
    single = greedy.choose_weights(models, criterion_for(truth), most=1)
    assert sorted(single.tolist()) == [0, 0, 0, 0, 1]


def test_a_model_that_others_only_harm_stays_alone() -> None:
    truth, models = noisy_models(0, 1)
    weights = greedy.choose_weights([truth.astype(np.float32), *models], criterion_for(truth), 2)
    assert weights.tolist() == [1, 0]


def test_held_out_logits_of_folds_with_other_weights_can_be_compared() -> None:
    """Two models of equal worth: which one has more weight differs by fold."""
    rng = np.random.default_rng(0)
    truth = np.where(rng.random((400, 6)) < 0.3, 1, -1)
    noisy = [truth + rng.normal(size=truth.shape) for _ in range(2)]
    models = [noisy[0].astype(np.float32), (20 * noisy[1] - 100).astype(np.float32)]
    folds = rng.integers(0, 5, len(truth))

    def criterion(logits: Any, rows: Any = None) -> NDArray[np.float64]:
        labels = truth if rows is None else truth[rows]
        return np.asarray(partlabel.metrics.evaluate(logits, labels).per_class["AP"])

    total = np.sum(models, axis=0)
    for most in (1, 2):
        held_out = greedy.without_own_labels(models, total, folds, criterion, most)
        best = max(greedy.mean_of(criterion(model)) for model in models)
        assert greedy.mean_of(criterion(held_out)) > best - 0.02
        np.testing.assert_allclose(held_out.mean(axis=0), total.mean(axis=0), rtol=0.02)
        np.testing.assert_allclose(held_out.std(axis=0), total.std(axis=0), rtol=0.1)


def test_labels_of_a_fold_do_not_choose_its_weights() -> None:
    truth, models = noisy_models(2, 3)
    folds = np.arange(len(truth)) % 3
    changed = np.where((folds == 1)[:, None], 1 - truth, truth)
    total = np.sum(models, axis=0)
    one, other = (
        greedy.without_own_labels(models, total, folds, criterion_for(labels), 3)
        for labels in (truth, changed)
    )
    assert np.array_equal(one[folds == 1], other[folds == 1])
    assert not np.array_equal(one[folds == 0], other[folds == 0])


def test_an_ensemble_is_the_weighted_sum_of_its_members() -> None:
    torch.manual_seed(0)
    maps, linear = torch.randn(3, 8, 4, 4), [Linear(8, 5), Linear(8, 5)]
    reduction, salient = Reduction(8, 6), Saliency(6, 5)
    reduction.fit([maps])
    ensemble = Ensemble(
        [
            Branch(torch.nn.Identity(), [merge_linear(linear, [0.3, 0.2])], [1.0]),
            Branch(reduction, [salient], [0.5]),
        ]
    ).eval()
    expected = 0.3 * linear[0](maps) + 0.2 * linear[1](maps) + 0.5 * salient(reduction(maps))
    assert torch.allclose(ensemble(maps), expected, atol=1e-6)
    assert ensemble.needs_maps
    assert ensemble.class_maps(maps).shape == (3, 5, 4, 4)
    flat = Ensemble([Branch(torch.nn.Identity(), linear, [0.3, 0.2])])
    assert not flat.needs_maps
    pooled = maps.mean(dim=(2, 3), keepdim=True)
    assert torch.allclose(flat(maps), flat(pooled), atol=1e-6)


# -- the search ------------------------------------------------------------------------------------


def test_the_search_finds_the_weight_decay_and_keeps_to_its_budget() -> None:
    recipes = [Recipe("bce", decay=1e-3), Recipe("em", decay=1e-3), Recipe("an", decay=1e-3)]
    trained: list[tuple[Candidate, int]] = []

    def measure(candidate: Candidate, folds: int) -> float:
        trained.append((candidate, folds))
        gain = {"bce": 0.2, "em": 0.1, "an": 0.0}[candidate.recipe.method]
        return 0.5 + gain - 0.01 * abs(DECAYS.index(candidate.decay) - DECAYS.index(1e-4))

    search = Search(recipes, measure, folds=5, screening=2, budget=60)
    finished = search.run()
    assert {(c.recipe.method, c.decay) for c in finished} == {
        (name, 1e-4) for name in ("bce", "em", "an")
    }
    assert search.spent == sum(2 for _, folds in trained if folds == 2) + 3 * len(finished)
    assert search.spent <= 60


@pytest.mark.parametrize("folds", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("on_maps", [None, Recipe("bce", training={"head": "saliency"})], ids=str)
def test_a_small_budget_finishes_at_least_one_candidate(folds: int, on_maps: Recipe | None) -> None:
    recipes = [Recipe(name, on_maps=on_maps) for name in ("bce", "em", "an", "ls")]
    for budget in range(folds, 30):
        search = Search(recipes, lambda _, number: 0.5, folds, min(2, folds), budget, teach=True)
        assert search.run(), budget
        assert search.spent <= budget


def test_a_failed_candidate_does_not_end_the_search() -> None:
    recipes = [Recipe("bce"), Recipe("em")]
    scores = {"bce": math.nan, "em": 0.4}
    search = Search(recipes, lambda c, folds: scores[c.recipe.method], 1, 1, 9)
    assert {candidate.recipe.method for candidate in search.run()} == {"em"}


def test_the_best_of_each_head_teach_the_best_of_all() -> None:
    recipes = [Recipe("bce", on_maps=Recipe("bce", training={"head": "saliency"})), Recipe("an")]

    def measure(candidate: Candidate, folds: int) -> float:
        gain = 0.1 * candidate.share + 0.01 * candidate.rounds
        return 0.5 + 0.1 * (candidate.recipe.head == "saliency") + gain

    taught = [one for one in Search(recipes, measure, 1, 1, 99, True).run() if one.teachers]
    assert {(c.recipe.head, c.rounds) for c in taught} == set(
        itertools.product(["linear", "saliency"], [1, 2, 3])
    )
    for candidate in taught:
        assert [teacher.recipe.head for teacher in candidate.teachers] == ["linear", "saliency"]
    assert {one.share for one in taught if one.rounds > 1} == {max(one.share for one in taught)}


def test_lessons_take_place_although_the_budget_does_not_allow_all_finalists() -> None:
    names = ["bce", "em", "an", "ls", "asl", "n-ls", "partial-bce", "dw", "splc", "focal", "role"]
    recipes = [Recipe(name) for name in names]

    def measure(candidate: Candidate, folds: int) -> float:
        return 0.5 + candidate.decay + 0.1 * bool(candidate.teachers)  # more decays are worth it

    search = Search(recipes, measure, 5, 2, 120, teach=True)
    taught = [one for one in search.run() if one.teachers]
    assert len(taught) == 6  # three students, two shares
    assert search.spent > 120 - 5  # not enough is left for another candidate


def test_the_command_of_a_candidate_has_every_setting_of_images_and_features() -> None:
    given: dict[str, Any] = {
        "mirror": True,
        "weights": "a file.pth",
        "split": "train",
        "val_split": "mine",
    }
    command = command_for(make_settings(method="bce", frozen="all", **given))
    for words in ("--mirror --", "--weights 'a file.pth'", "--split train", "--val-split mine"):
        assert words in command
    assert "--mirror" not in command_for(make_settings(method="bce", frozen="all"))


def test_the_printed_table_has_only_candidates_that_can_be_compared() -> None:
    lines = [Line(f"c{n}", "bce", "linear", 0.1, "mAP", 0.5 + n / 10, n, 1.0) for n in (5, 2, 1)]
    text = as_text([*lines, Line("bad", "em", "linear", 0.1, "mAP", math.nan, 2, 1.0, 0, "why")])
    assert "c5" in text
    assert "failed: why" in text
    assert "c2" not in text
    assert text.endswith("2 further candidates: leaderboard.csv in the run")
    assert "further" not in as_text(lines[:1])


def test_without_a_better_teacher_there_is_one_round() -> None:
    recipes = [Recipe("bce", decay=1e-3)]
    search = Search(recipes, lambda c, folds: 0.5 - 0.1 * c.rounds, 1, 1, 99, True)
    taught = [one for one in search.run() if one.teachers]
    assert {one.rounds for one in taught} == {1}
    assert {one.decay for one in taught} == {3e-4, 1e-3, 3e-3}


def test_only_the_best_methods_are_tried_on_maps() -> None:
    names = ["bce", "em", "an", "ls"]
    recipes = [Recipe(name, on_maps=Recipe(name, training={"head": "saliency"})) for name in names]
    tried: list[Candidate] = []

    def measure(candidate: Candidate, folds: int) -> float:
        tried.append(candidate)
        return 0.1 * names.index(candidate.recipe.method)

    Search(recipes, measure, 1, 1, 40).run()
    assert {c.recipe.method for c in tried if c.recipe.head == "saliency"} == {"em", "an", "ls"}


def test_the_portfolio_depends_on_what_is_known() -> None:
    both, single = random_table(0), table_of(np.eye(6, dtype=int))
    units = {FeatureKind(None, 1.0): 0.1, FeatureKind(None, 0.5): 0.1, FeatureKind(8, 0.5): 0.1}
    known = make_portfolio(both, has_absent=True, components=8, units=units)
    names = {recipe.method for recipe in known}
    for recipe in known:  # "n-ls" is much like "ls"
        assert (recipe.on_maps is None) == (recipe.method == "n-ls")
        assert not recipe.on_maps or recipe.on_maps.decay == pytest.approx(10 * recipe.decay)
    assert {"bce", "em", "ls"} <= names
    positives = make_portfolio(single, has_absent=False, components=None, units=units)
    assert all(recipe.on_maps is None for recipe in positives)
    assert "bce" not in {recipe.method for recipe in positives}
    assert all("auto" not in recipe.options.values() for recipe in positives)
    assert {recipe.head for recipe in positives} == {"linear"}


def test_a_teacher_adds_its_most_likely_unknown_labels() -> None:
    table = table_of(np.array([[1], [0], [0], [0], [0], [0], [-1], [0]]))
    evidence = table_of(np.array([[1], [-1]]))
    assert missing_positives(table, evidence).tolist() == [3.0]
    logits = np.arange(8, dtype=np.float32)[:, None]
    taught = with_likely_positives(table, logits, evidence, share=0.67)
    assert taught.dense().ravel().tolist() == [1, 0, 0, 0, 0, 1, -1, 1]


# -- settings --------------------------------------------------------------------------------------


def test_auto_is_the_default_and_refuses_what_it_chooses_itself() -> None:
    settings = make_settings()
    assert (settings.method, settings.frozen) == ("auto", "all")
    for arguments in ({"lr": 0.1}, {"head": "linear"}, {"options": {"alpha": 1}}, {"epochs": 3}):
        with pytest.raises(InputError, match="no effect with --method auto"):
            make_settings(**arguments)
    assert make_settings(frozen="lower").frozen == "lower"
    assert make_settings(frozen=False).frozen == "nothing"
    with pytest.raises(InputError, match="budget"):
        make_settings(budget="huge")
    assert make_settings(budget=7, val=0.0, reserve=0.0).reserve == 0
    for name, value in {"budget": "small", "folds": 3, "single": True}.items():
        with pytest.raises(InputError, match="without --method auto"):
            make_settings(method="bce", **{name: value})


def test_the_configuration_of_a_run_names_only_what_has_an_effect(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(write_config(make_settings(folds=4)))
    text = path.read_text()
    assert "folds: 4" in text
    assert "optimizer" not in text


# -- whole runs ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def automatic(scene: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    table = read_labels(scene / "partial.csv")
    rows = np.flatnonzero(table.in_split("train"))
    out = tmp_path_factory.mktemp("auto") / "run"
    return partlabel.train(table.subset(rows), scene / "images", out, budget=12, folds=3, **TINY)


@pytest.mark.filterwarnings("ignore:.*look")
def test_a_run_predicts_evaluates_completes_and_reports(automatic: Run, scene: Path) -> None:
    record = automatic.record
    assert record.finished
    assert sum(member.share for member in record.members) == pytest.approx(1)
    assert not (automatic.folder / "auto").exists()
    scores = partlabel.load(automatic).predict(sorted((scene / "images").iterdir())[:3])
    assert scores.shape == (3, 5)
    assert np.isfinite(scores).all()
    result = partlabel.evaluate(automatic, scene / "labels.csv", scene / "images", split="test")
    assert 0 < result["mAP"] <= 1
    with pytest.warns(PartlabelWarning, match="are needed to show 95%"):
        done = partlabel.complete(automatic, only_labelled=True)
    assert len(done.table) == 24
    page = partlabel.report(automatic).read_text()
    assert page.index("Results per class") < page.index("What was tried")
    assert record.members[0].name in page


def test_the_leaderboard_lists_every_candidate(automatic: Run) -> None:
    lines = read_leaderboard(automatic.folder)
    assert len(lines) > 1
    shares = {line.candidate: line.weight for line in lines if line.weight}
    assert shares == {member.name: member.share for member in automatic.record.members}
    assert lines[0].folds == 3


def test_out_of_fold_logits_cover_the_training_images(automatic: Run) -> None:
    state = load_state(automatic.folder / "out_of_fold.safetensors")
    assert state["rows"].tolist() == automatic.selection.train.tolist()
    assert state["logits"].shape == (len(automatic.selection.train), 5)
    assert torch.isfinite(state["logits"]).all()


def test_a_stopped_run_goes_on_and_repeats_nothing(
    automatic: Run, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[tuple[str, str]] = []
    train = Laboratory._train

    def counted(self: Laboratory, candidate: Candidate, *rest: Any) -> Any:
        if len(trained) == 5 and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            raise KeyboardInterrupt
        trained.append((candidate.name, rest[0].name))
        return train(self, candidate, *rest)

    monkeypatch.setattr(Laboratory, "_train", counted)
    labels, out = automatic.selection.labels, tmp_path / "run"
    arguments: dict[str, Any] = {"budget": 12, "folds": 3, **TINY}
    with pytest.raises(KeyboardInterrupt):
        partlabel.train(labels, scene / "images", out, **arguments)
    run = partlabel.train(labels, scene / "images", out, resume=True, **arguments)
    assert len(trained) == len(set(trained)) > 5
    for name in ("best.safetensors", "out_of_fold.safetensors"):
        assert same(load_state(run.folder / name), load_state(automatic.folder / name))
    assert run.record.members == automatic.record.members
    partlabel.train(labels, scene / "images", out, resume=True, **arguments)
    assert len(trained) == len(set(trained))


def test_the_time_that_is_left_follows_from_the_trainings_that_are_done() -> None:
    lines = {n: Line(f"{n}", "an", "linear", 0.1, "mAP", 0.5, 2, 90.0) for n in range(3)}
    nothing = cast("Any", None)
    comparison = Comparison(
        nothing, nothing, None, 9, np.arange(9), nothing, cast("dict[Candidate, Line]", lines)
    )
    assert comparison._time_left() == ""
    comparison.done, comparison.budget = 6, 10
    assert comparison._time_left() == " (about 3 min left)"
    comparison.done = 10
    assert comparison._time_left() == ""


def test_a_signal_in_the_middle_of_a_training_changes_nothing(
    automatic: Run, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = itertools.count()

    @contextmanager
    def signalled() -> Iterator[Callable[[], int]]:
        yield lambda: 15 if next(steps) == 7 else 0  # in the second training of 12 epochs or so

    labels, out = automatic.selection.labels, tmp_path / "run"
    arguments: dict[str, Any] = {"budget": 12, "folds": 3, **TINY}
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "interruptible", signalled)
        with pytest.raises(trainer.InterruptedTrainingError):
            partlabel.train(labels, scene / "images", out, **arguments)
    assert len(list((out / "auto").glob("*/last.safetensors"))) == 1
    run = partlabel.train(labels, scene / "images", out, resume=True, **arguments)
    best = load_state(run.folder / "best.safetensors")
    assert same(best, load_state(automatic.folder / "best.safetensors"))


@pytest.mark.parametrize(
    ("error", "noted"),
    [
        (JobError("the loss became nan"), "the loss became nan"),
        (RuntimeError("out of memory"), "RuntimeError: out of memory"),
    ],
)
def test_a_candidate_that_fails_is_noted(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, noted: str
) -> None:
    train = Laboratory._train

    def failing(self: Laboratory, candidate: Candidate, *rest: Any) -> Any:
        if candidate.recipe.method == "bce":
            raise error
        return train(self, candidate, *rest)

    monkeypatch.setattr(Laboratory, "_train", failing)
    run = partlabel.train(
        scene / "partial.csv", scene / "images", tmp_path / "run", budget=4, reserve=0.0, **TINY
    )
    lines = read_leaderboard(run.folder)
    assert {line.error for line in lines if line.method == "bce"} == {noted}
    assert all(member.settings.method != "bce" for member in run.record.members)


def test_a_member_that_fails_on_all_training_images_is_left_out(
    automatic: Run, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was trained on folds without an error, so that only the end shows it."""
    train, failed = Laboratory._train, max(automatic.record.members, key=lambda m: m.share).name

    def failing(self: Laboratory, candidate: Candidate, part: Part, work: Path) -> Any:
        if candidate.label == failed and part.name == "all":
            raise JobError("the loss became nan")
        return train(self, candidate, part, work)

    monkeypatch.setattr(Laboratory, "_train", failing)
    labels, images = automatic.selection.labels, scene / "images"
    run = partlabel.train(labels, images, tmp_path / "run", budget=12, folds=3, **TINY)
    errors = {line.candidate: line.error for line in read_leaderboard(run.folder) if line.error}
    assert errors == {failed: "the loss became nan"}
    assert run.record.finished
    assert sum(member.share for member in run.record.members) == pytest.approx(1)
    assert failed not in {member.name for member in run.record.members}


def test_labels_of_a_fold_do_not_show_how_many_are_present() -> None:
    table = table_of(np.array([[1, -1], [1, 1], [-1, 1], [1, 0]]))
    part = Part("fold0", np.array([0, 2]), np.array([1, 3]))
    assert evidence_for(part, table, table).dense().tolist() == [[1, -1], [-1, 1]]
    holdout = LabelTable(["x"], table.classes, [[1, -1]])
    assert evidence_for(part, holdout, table) is holdout


def test_a_holdout_chooses_and_each_candidate_trains_once(scene: Path, tmp_path: Path) -> None:
    run = partlabel.train(
        scene / "partial.csv", scene / "images", tmp_path / "run", budget=4, reserve=0.0, **TINY
    )
    assert {line.folds for line in read_leaderboard(run.folder)} == {1}
    assert not (run.folder / "out_of_fold.safetensors").exists()
    assert run.record.best_val_mAP is not None


def test_single_keeps_one_member_that_its_command_trains_again(scene: Path, tmp_path: Path) -> None:
    labels = scene / "partial.csv"
    run = partlabel.train(
        labels, scene / "images", tmp_path / "run", budget=1, single=True, reserve=0.0, **TINY
    )
    (member,) = run.record.members
    assert "--method" in command_for(member.settings)
    alone = partlabel.train(
        labels,
        scene / "images",
        tmp_path / "alone",
        **effective(member.settings) | {"options": member.settings.options},
    )
    ours = partlabel.evaluate(run, scene / "labels.csv", scene / "images", split="test")
    theirs = partlabel.evaluate(alone, scene / "labels.csv", scene / "images", split="test")
    assert ours["mAP"] == pytest.approx(theirs["mAP"], abs=1e-6)


def test_the_printed_command_trains_on_the_same_labels(scene: Path, tmp_path: Path) -> None:
    """Without a split to validate on, a named method would hold images back by default."""
    table = read_labels(scene / "partial.csv")
    labels = tmp_path / "labels.csv"
    write_labels(table.subset(np.flatnonzero(table.in_split("train"))), labels)
    files = [str(labels), "--images", str(scene / "images")]
    tiny = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
    budget = ["--budget", "3", "--folds", "3", "--single"]
    assert main(["train", *files, "--out", str(tmp_path / "run"), *budget, *tiny]) == 0
    command = command_for(Run(tmp_path / "run").record.members[0].settings)
    words = shlex.split(command.removeprefix("partlabel train LABELS --images IMAGES --out OUT"))
    assert main(["train", *files, "--out", str(tmp_path / "alone"), *words]) == 0
    truth, images = scene / "labels.csv", scene / "images"
    ours, theirs = (
        partlabel.evaluate(tmp_path / name, truth, images, split="test")["mAP"]
        for name in ("run", "alone")
    )
    assert ours == pytest.approx(theirs, abs=1e-6)


# -- bad input -------------------------------------------------------------------------------------


def test_with_positives_only_their_rank_chooses(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = simulate.single_positive(read_labels(scene / "labels.csv"), seed=0)
    run = partlabel.train(
        labels, scene / "images", tmp_path / "run", budget=6, folds=3, split="train", **TINY
    )
    assert read_leaderboard(run.folder)[0].criterion == "rank of positives"
    assert "too few labels are known to be present or absent" in capsys.readouterr().err


def test_a_class_without_positives_is_left_out(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = read_labels(scene / "labels.csv").split("train")
    values = table.dense()
    values[:, 0] = -1
    values[:, 1] = np.where(np.arange(len(values)) == 4, 1, -1)  # a single positive
    labels = LabelTable(table.ids, table.classes, values)
    run = partlabel.train(
        labels, scene / "images", tmp_path / "run", budget=3, folds=2, val=0.0, **TINY
    )
    assert run.record.classes == list(table.classes)[1:]
    assert "classes left out" in capsys.readouterr().err


@pytest.mark.parametrize("known", ["all present", "twelve images"])
def test_few_or_one_sided_labels_still_give_a_run(scene: Path, tmp_path: Path, known: str) -> None:
    table = read_labels(scene / "labels.csv").split("train").subset(np.arange(12))
    table = table.with_classes(list(table.classes)[:3])
    values = np.ones((12, 3)) if known == "all present" else table.dense()
    labels = LabelTable(table.ids, table.classes, values)
    images = scene / "images"
    if known == "all present":
        with pytest.raises(InputError, match="every training image has every class"):
            partlabel.train(labels, images, tmp_path / "run", budget=2, folds=2, val=0.0, **TINY)
        return
    run = partlabel.train(labels, images, tmp_path / "run", budget=2, folds=2, val=0.0, **TINY)
    assert run.record.finished


def test_two_thousand_classes_and_a_budget_for_one_candidate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    table = table_of(rng.choice([-1, 0, 1], size=(40, 2000)))
    vectors = rng.normal(size=(40, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", ids=list(table.ids), vectors=vectors)
    run = partlabel.train(
        table, features=tmp_path / "x.npz", out=tmp_path / "run", budget=1, folds=2
    )
    said = capsys.readouterr().err
    assert "a candidate needs 2 trainings, so the budget is 2, for one" in said
    assert "kB of results on disk until the end" in said
    assert len(run.record.classes) == 2000
    assert len(run.record.members) == 1


def test_labels_that_say_nothing_are_an_error(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "labels.csv").split("train")
    labels = LabelTable(table.ids, table.classes, np.zeros(table.shape))
    with pytest.raises(InputError, match="no class is left to learn"):
        partlabel.train(labels, scene / "images", tmp_path / "run", **TINY)


def test_too_few_images_for_the_folds_are_an_error(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "labels.csv").split("train").subset(np.arange(4))
    with pytest.raises(InputError, match="folds"):
        partlabel.train(table, scene / "images", tmp_path / "run", val=0.0, drop_empty=True, **TINY)


def test_a_leaderboard_is_read_as_it_was_written(tmp_path: Path) -> None:
    lines = [
        Line("a", "em", "linear", 1e-3, "mAP", 0.5, 5, 1.5, 1.0),
        Line("b", "an", "linear", 1e-4, "mAP", math.nan, 2, 0.5, error="broken, quite"),
    ]
    write_lines(tmp_path, lines)
    first, second = read_leaderboard(tmp_path)
    assert first == lines[0]
    assert (math.isnan(second.score), second.error) == (True, "broken, quite")
