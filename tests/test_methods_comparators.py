"""The methods that imcl is compared with: lsep, wsabie, fast0tag, latent-noise and cnn-rnn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conformance import MethodConformance
from partlabel.base.errors import FileError, InputError, PartlabelWarning
from partlabel.images.batches import Batch
from partlabel.labels import LabelTable
from partlabel.learning.cooccurrence import count_pairs, label_vectors
from partlabel.learning.extensions import FollowsStages
from partlabel.learning.methods import METHODS, Method, Task
from partlabel.learning.methods.cnn_rnn import CnnRnn
from partlabel.learning.methods.latent_noise import LatentNoise
from partlabel.learning.methods.ranking import Fast0Tag, Lsep, Wsabie
from partlabel.models import Classifier
from partlabel.models.heads import LabelVectors, RecurrentDecoder, Relevance
from partlabel.models.heads.recurrent import _log_odds
from partlabel.training.build import make_head


class TestLsep(MethodConformance):
    name = "lsep"


class TestWsabie(MethodConformance):
    name = "wsabie"


class TestFast0Tag(MethodConformance):
    name = "fast0tag"


class TestLatentNoise(MethodConformance):
    name = "latent-noise"


class TestCnnRnn(MethodConformance):
    name = "cnn-rnn"


LABELS = np.array([[1, 0, -1], [1, 1, 0], [0, 0, 1], [-1, 1, 0], [0, 0, 0]])


def task(labels: Any = LABELS) -> Task:
    names = [f"c{j}" for j in range(labels.shape[1])]
    table = LabelTable([f"{i}" for i in range(len(labels))], names, labels)
    return Task(table, table, epochs=4)


def set_up(method: Method, stage: int = 0) -> tuple[Classifier, Batch]:
    """A model and a batch for a method that is at the beginning of a stage."""
    torch.manual_seed(0)
    method.prepare(task())
    model = Classifier(torch.nn.Identity(), make_head(method, 4, 3), ["c0", "c1", "c2"])  # type: ignore[arg-type]
    if isinstance(method, FollowsStages):
        method.begin_stage(stage, model)
    maps = torch.rand(5, 4, 2, 2)
    return model, Batch(torch.arange(5), torch.from_numpy(LABELS).float(), {"weak": maps})


def test_lsep_starts_with_cross_entropy() -> None:
    from partlabel.learning import losses

    method = Lsep()
    for stage, loss in ((0, losses.batch_bce), (1, losses.lsep)):
        model, batch = set_up(method, stage)
        expected = loss(model(batch.views["weak"]), batch.labels)
        assert torch.equal(method.loss(model, batch)["loss"], expected)
    assert [stage.epochs for stage in method.stages(5, None)] == [3, 2]
    assert [stage.epochs for stage in Lsep(warmup=0).stages(5, None)] == [5]


@pytest.mark.parametrize("name", ["lsep", "wsabie", "fast0tag"])
def test_a_warning_if_no_label_is_known_to_be_absent(name: str) -> None:
    with pytest.warns(PartlabelWarning, match=f"{name} has nothing to rank present labels above"):
        METHODS[name]().prepare(task(np.array([[1, 0], [0, 1]])))


def test_vectors_from_cooccurrence() -> None:
    labels = np.random.default_rng(0).integers(-1, 2, (40, 6))
    labels[:, 5] = -1  # never present
    table = task(labels).labels
    counts = count_pairs(table).toarray().astype(float)
    scale = 1 / np.sqrt(np.maximum(np.diag(counts), 1))
    joint = counts * scale[:, None] * scale
    full = label_vectors(table, 8)
    assert full.shape == (6, 8)
    np.testing.assert_allclose(full @ full.T, joint, atol=1e-5)
    few = label_vectors(table, 3)
    values, vectors = np.linalg.eigh(joint)
    best = (vectors[:, -3:] * values[-3:]) @ vectors[:, -3:].T
    np.testing.assert_allclose(few @ few.T, best, atol=1e-5)
    np.testing.assert_array_equal(few, label_vectors(table, 3))
    alone = task(2 * np.eye(60, dtype=int) - 1).labels  # no two classes occur together
    np.testing.assert_array_equal(label_vectors(alone, 50), label_vectors(alone, 50))


def test_vectors_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "vectors.csv"
    path.write_text("class,x,y\nc1,0,2\nc2,3,4\nc0,1,0\nother,9,9\n")
    model, _ = set_up(Wsabie(2, str(path)))
    assert isinstance(model.head, LabelVectors)
    vectors = model.head.vectors.detach()
    np.testing.assert_allclose(vectors, np.array([[1, 0], [0, 1], [0.6, 0.8]]), rtol=1e-6)
    with pytest.raises(InputError, match="have 2 numbers, not 3; set --set width=2"):
        set_up(Wsabie(3, str(path)))
    for text, message in {
        "class,x\nc0,1\nc0,2\n": "a second vector for 'c0'",
        "class,x\nc0,nan\n": "expected a number, found 'nan'",
        "class,x\nc0\n": "expected 2 columns, found 1",
        "name,x\nc0,1\n": "the header must start with class",
        "class,x\nc0,0,5\n": "expected 2 columns, found 3",
        "class,x\nc0,1e300\n": "too large",
        "class,x\nc0,1\n": "no vector for 2 classes",
    }.items():
        path.write_text(text)
        with pytest.raises(FileError, match=message):
            set_up(Wsabie(1, str(path)))


def test_wsabie_trains_class_vectors_and_fast0tag_does_not() -> None:
    for method, is_trained in ((Wsabie(4), True), (Fast0Tag(4), False)):
        model, batch = set_up(method)
        head = model.head
        assert isinstance(head, LabelVectors)
        assert head.vectors.requires_grad is is_trained
        method.loss(model, batch)["loss"].backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            expected = head.embed(batch.views["weak"].mean(dim=(2, 3))) @ head.vectors.T
        torch.testing.assert_close(model(batch.views["weak"]).detach(), expected)
        with torch.no_grad():
            head.vectors.zero_()
        method.begin_stage(0, model)  # as after a resume: trained vectors stay
        assert not bool(head.vectors.any())


@pytest.mark.parametrize("unknown", ["ignored", "unmentioned"])
def test_latent_noise_by_hand(unknown: Any) -> None:
    method = LatentNoise(unknown=unknown)
    model, batch = set_up(method)
    head = model.head
    assert isinstance(head, Relevance)
    means = batch.views["weak"].mean(dim=(2, 3))
    v = torch.sigmoid(head.visual(means)).detach().double().numpy()
    r = torch.sigmoid(head.relevance(means)).detach().double().numpy()
    cost = np.where(LABELS > 0, -np.log(v * r), -np.log(1 - v * r))
    if unknown == "ignored":
        expected = cost[LABELS != 0].mean()
    else:
        expected = np.where(LABELS < 0, -np.log(1 - v), cost).mean()
    assert float(method.loss(model, batch)["loss"].detach()) == pytest.approx(expected, rel=1e-5)
    scores = torch.sigmoid(model(batch.views["weak"])).detach().numpy()
    np.testing.assert_allclose(scores, v, rtol=1e-5)
    head.scores = "relevance"
    scores = torch.sigmoid(model(batch.views["weak"])).detach().numpy()
    np.testing.assert_allclose(scores, v * r, rtol=1e-5)


def test_unknown_labels_are_unmentioned_if_no_label_is_known_to_be_absent() -> None:
    for labels, ignores in ((LABELS, True), (np.maximum(LABELS, 0), False)):
        method = LatentNoise()
        method.prepare(task(labels))
        assert method.ignores is ignores


def test_sentences_have_common_labels_first() -> None:
    method = CnnRnn()
    labels = np.array([[1, 1, 1], [-1, 0, 1], [0, 0, 1], [0, 1, 1], [0, 0, 0]])
    method.prepare(task(labels))  # the order is 2, 1, 0; 3 marks the beginning and the end
    words, next_words = method.sentences(torch.from_numpy(labels))
    end, none = 3, -1
    assert next_words.tolist() == [
        [2, 1, 0, end],
        [2, end, none, none],
        [2, end, none, none],
        [2, 1, end, none],
        [end, none, none, none],
    ]
    assert words[0].tolist() == [end, 2, 1, 0]
    assert words[3, :3].tolist() == [end, 2, 1]


def test_cnn_rnn_by_hand() -> None:
    method = CnnRnn(width=5, hidden=6, steps=3)
    model, batch = set_up(method)
    head = model.head
    assert isinstance(head, RecurrentDecoder)
    means = batch.views["weak"].mean(dim=(2, 3))
    words, next_words = method.sentences(batch.labels)
    predicted = head.next_word_logits(batch.views["weak"], words).detach()
    total, number = 0.0, 0
    for i in range(5):
        state: Any = None
        for t in range(words.shape[1]):
            state = head.cell(head.words(words[i : i + 1, t]), state)
            joined = torch.relu(head.from_state(state[0]) + head.from_image(means[i : i + 1]))
            logits = (joined @ head.words.weight.T)[0].detach()
            torch.testing.assert_close(predicted[i, t], logits)
            if next_words[i, t] >= 0:
                total -= float(torch.log_softmax(logits, dim=0)[next_words[i, t]])
                number += 1
    assert float(method.loss(model, batch)["loss"].detach()) == pytest.approx(total / number)


def test_the_score_of_a_class_is_its_largest_probability() -> None:
    torch.manual_seed(3)
    head = RecurrentDecoder(4, 3, width=5, hidden=6, steps=3)
    with torch.no_grad():
        head.words.weight.mul_(3)
        head.from_image.weight.mul_(4)
    maps = torch.randn(8, 4, 1, 1) * 2
    scores = torch.sigmoid(head(maps)).detach().numpy()
    lengths = []
    for i in range(8):
        word, best = 3, np.zeros(3)
        used: list[int] = []
        state: Any = None
        for _ in range(3):
            state = head.cell(head.words(torch.tensor([word])), state)
            joined = torch.relu(head.from_state(state[0]) + head.from_image(maps[i, :, 0, 0]))
            logits = (joined @ head.words.weight.T)[0]
            logits[used] = -torch.inf
            probabilities = torch.softmax(logits, dim=0).detach().numpy()
            best = np.maximum(best, probabilities[:3])
            word = int(logits.argmax())
            if word == 3:
                break
            used.append(word)
        lengths.append(len(used))
        np.testing.assert_allclose(scores[i], best, rtol=1e-4, atol=1e-5)
    assert len(set(lengths)) > 1


def test_log_odds_of_likely_words_are_accurate() -> None:
    logits = torch.tensor([[50.0, 1.0, 0.0], [60.0, 1.0, 0.0]])
    odds = _log_odds(logits)
    expected = [[50 - np.log(np.e + 1), 1 - 50, -50], [60 - np.log(np.e + 1), 1 - 60, -60]]
    np.testing.assert_allclose(odds, np.array(expected), rtol=1e-6)
