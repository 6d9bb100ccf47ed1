"""Exported models give the answers of predict; wrong calls are refused; the table is true."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from numpy.typing import NDArray
from PIL import Image

import partlabel
from partlabel import LabelTable, read_labels
from partlabel.base.errors import FileError, InputError
from partlabel.cli import main
from partlabel.judging.decisions import final_decisions
from partlabel.judging.scoring import score
from partlabel.labels import ABSENT, PRESENT
from partlabel.labels.formats import FORMATS
from partlabel.metrics.calibration import logits
from partlabel.models.heads import Branch, Ensemble, Linear
from partlabel.models.reduction import Reduction
from partlabel.output.export.deployed import FromPixels
from partlabel.output.export.onnx_model import read_about
from partlabel.output.export.timm_network import linear_layer
from partlabel.output.targets import TARGETS
from partlabel.training.run import Run

onnxruntime: Any = pytest.importorskip("onnxruntime")

TINY: dict[str, Any] = {"backbone": "test_efficientnet", "weights": "none", "size": 64, "seed": 0}
FROZEN: dict[str, Any] = {**TINY, "method": "bce", "frozen": "all", "epochs": 2}
BOTH: dict[str, Any] = {**FROZEN, "backbone": "test_efficientnet+test_vit", "size": 160}
LITE: dict[str, Any] = {"backbone": "tf_efficientnet_lite0", "size": 64}
VIT: dict[str, Any] = {**FROZEN, "backbone": "test_vit", "size": 160}

pytestmark = pytest.mark.filterwarnings("ignore::partlabel.base.errors.PartlabelWarning")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("export")


@pytest.fixture(scope="module")
def run(scene: Path, home: Path) -> Run:
    return trained(scene, home / "run", **FROZEN)


def trained(scene: Path, out: Path, **settings: Any) -> Run:
    table = read_labels(scene / "labels.csv")
    return partlabel.train(table, scene / "images", out, cache=out.parent / "cache", **settings)


def pixels_of(files: list[Path], size: int | None = None) -> NDArray[np.uint8]:
    images = [Image.open(file).convert("RGB") for file in files]
    if size is not None:
        images = [image.resize((size, size), Image.Resampling.BICUBIC) for image in images]
    return np.stack([np.asarray(image) for image in images])


def answers(path: Path, given: NDArray[Any]) -> list[NDArray[Any]]:
    session = onnxruntime.InferenceSession(str(path))
    result: list[NDArray[Any]] = session.run(None, {session.get_inputs()[0].name: given})
    return result


def scores_of(table: LabelTable) -> NDArray[np.float64]:
    return np.asarray(table.cells.scores_or_nan(), dtype=np.float64).reshape(table.shape)


def agree(path: Path, run: Run, scene: Path, tolerance: float = 1e-4) -> None:
    """A file gives the scores and labels of predict, from resized images."""
    files = sorted((scene / "images").iterdir())[:3]
    predicted = partlabel.predict(run, files)
    probabilities, labels, decisions = answers(path, pixels_of(files, run.settings.size))
    assert np.abs(probabilities - scores_of(predicted)).max() < tolerance
    assert (labels == predicted.dense()).all()
    near = np.zeros(probabilities.shape, dtype=np.bool_)
    about = read_about(path)
    for name in ("present_from", "absent_to"):
        near |= np.abs(probabilities - about[name]) < tolerance
    answered = partlabel.predict(run, files, abstain=True).dense()
    assert ((decisions == answered) | near).all()
    alone = answers(path, pixels_of(files[:1], run.settings.size))
    assert np.abs(alone[0] - probabilities[:1]).max() < tolerance


# ---- ONNX


def test_an_onnx_file_gives_what_predict_gives(run: Run, scene: Path, home: Path) -> None:
    done = partlabel.export(run, home / "model.onnx", "onnx")
    agree(home / "model.onnx", run, scene)
    assert "no guarantee" in done.notes[0]
    about = read_about(home / "model.onnx")
    assert about["classes"] == run.record.classes
    assert about["size"] == 64
    assert about["partlabel"] == partlabel.__version__
    assert len(about["thresholds"]) == len(about["classes"])
    assert about["guarantee"] == "none"
    assert "apache-2.0" in about["licence"]


@pytest.mark.parametrize("size", [(1501, 1051), (640, 480), (50, 33)], ids=str)
def test_raw_pixels_of_jpegs_agree_with_predict(
    size: tuple[int, int], run: Run, scene: Path, home: Path, tmp_path: Path
) -> None:
    """Also of an image that is much larger than the run's."""
    if not (home / "model.onnx").is_file():
        partlabel.export(run, home / "model.onnx", "onnx")
    if not (home / "model.pt2").is_file():
        partlabel.export(run, home / "model.pt2", "torch-export", tested=False)
    noise = np.random.default_rng(0).normal(0, 8, (size[1], size[0], 3))
    image = Image.open(scene / "images" / "000000.png").convert("RGB")
    rough = np.asarray(image.resize(size, Image.Resampling.BICUBIC)) + noise
    Image.fromarray(rough.clip(0, 255).astype(np.uint8)).save(tmp_path / "a.jpg", quality=90)
    pixels = pixels_of([tmp_path / "a.jpg"])
    predicted = scores_of(partlabel.predict(run, tmp_path / "a.jpg"))
    probabilities = answers(home / "model.onnx", pixels)[0]
    assert np.abs(probabilities - predicted).max() < 1e-3
    program = torch.export.load(str(home / "model.pt2")).module()
    probabilities = program(torch.from_numpy(pixels))[0].numpy()
    assert np.abs(probabilities - predicted).max() < 1e-3


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({**BOTH, "head": "decoder", "reduce": 8}, id="joined, reduced, decoder"),
        pytest.param({**VIT, "head": "weldon"}, id="ViT, weldon"),
        pytest.param({**FROZEN, "frozen": "lower", "method": "sr"}, id="unfrozen, saliency"),
        pytest.param({**FROZEN, "method": "ml-gcn"}, id="graph convolutions"),
        pytest.param({**FROZEN, "method": "ssgrl"}, id="features of classes"),
        pytest.param({**TINY, "method": "auto", "budget": 6, "folds": 3}, id="auto"),
        pytest.param({**LITE, "method": "auto", "budget": 12, "folds": 2}, id="own classes"),
    ],
)
def test_every_kind_of_model_becomes_a_file(
    settings: dict[str, Any], scene: Path, tmp_path: Path
) -> None:
    run = trained(scene, tmp_path / "run", **settings)
    partlabel.export(run, tmp_path / "model.onnx", "onnx", tested=False, resized=True)
    agree(tmp_path / "model.onnx", run, scene)


def test_a_model_on_features_takes_vectors(scene: Path, tmp_path: Path) -> None:
    table = read_labels(scene / "labels.csv")
    vectors = np.random.default_rng(0).normal(size=(len(table), 6)).astype(np.float32)
    np.savez(tmp_path / "v.npz", ids=np.array(list(table.ids)), vectors=vectors)
    run = partlabel.train(
        table, features=tmp_path / "v.npz", out=tmp_path / "run", method="bce", epochs=2, reduce=4
    )
    partlabel.export(run, tmp_path / "model.onnx", "onnx")
    probabilities = answers(tmp_path / "model.onnx", vectors)[0]
    predicted = partlabel.predict(run, features=tmp_path / "v.npz")
    assert np.abs(probabilities - scores_of(predicted)).max() < 1e-4


# ---- decisions


def test_tested_decisions_are_what_reserved_labels_show(tmp_path: Path) -> None:
    """Counted again: how often a decision on a reserved label is right."""
    generator = np.random.default_rng(0)
    labels = np.where(generator.random((400, 3)) < 0.4, 1, -1)
    vectors = labels + generator.normal(0, 0.8, labels.shape)
    ids = [f"{n:03}" for n in range(400)]
    np.savez(tmp_path / "v.npz", ids=np.array(ids), vectors=vectors.astype(np.float32))
    run = partlabel.train(
        LabelTable(ids, ["a", "b", "c"], labels, ["train"] * 160 + ["holdout"] * 240),
        features=tmp_path / "v.npz",
        out=tmp_path / "run",
        method="bce",
        optimizer="lbfgs",
    )
    decisions = final_decisions(run, 0.9)
    assert decisions.guaranteed
    assert decisions.on_new_images
    reserved = run.selection.known.subset(run.selection.reserved)
    raw, truth = logits(score(run, reserved).scores), reserved.dense()
    found = 0
    for value, sign in ((PRESENT, raw >= decisions.present), (ABSENT, raw <= decisions.absent)):
        tests = [test[value] for test in decisions.tests]
        together = [j for j, test in enumerate(tests) if test is not None and not test.alone]
        groups = [[j] for j, test in enumerate(tests) if test is not None and test.alone]
        for group in [*groups, *([together] if together else [])]:
            test = tests[group[0]]
            assert test is not None
            assert test.answers == int(sign[:, group].sum())
            assert test.right == int((truth[:, group] == value)[sign[:, group]].sum())
            found += 1
        assert not sign[:, [j for j, test in enumerate(tests) if test is None]].any()
    assert found


def test_a_run_of_auto_says_what_would_give_its_decisions_a_guarantee(tmp_path: Path) -> None:
    """All labels are known, so none is reserved; with the share that is proposed, some are."""
    generator = np.random.default_rng(0)
    labels = np.where(generator.random((400, 3)) < 0.4, 1, -1)
    vectors = labels + generator.normal(0, 0.5, labels.shape)
    ids = [f"{n:03}" for n in range(400)]
    np.savez(tmp_path / "v.npz", ids=np.array(ids), vectors=vectors.astype(np.float32))
    table = LabelTable(ids, ["a", "b", "c"], labels)
    settings: dict[str, Any] = {"features": tmp_path / "v.npz", "budget": 3, "folds": 3}
    run = partlabel.train(table, out=tmp_path / "run", **settings)
    assert "models of the folds of `auto`, not this one" in final_decisions(run).without
    assert "--reserve 0.2" in final_decisions(run).without
    decisions = final_decisions(
        partlabel.train(table, out=tmp_path / "again", reserve=0.2, **settings)
    )
    assert decisions.guaranteed
    assert not decisions.on_new_images


def test_decisions_without_a_test_follow_the_probability(run: Run, home: Path) -> None:
    decisions = final_decisions(run, 0.8, tested=False)
    calibration = partlabel.load(run).calibration
    assert calibration is not None
    line = (calibration.slopes, calibration.intercepts)
    assert 1 / (1 + np.exp(-(decisions.present * line[0] + line[1]))) == pytest.approx(
        0.8, abs=1e-3
    )
    assert 1 / (1 + np.exp(-(decisions.absent * line[0] + line[1]))) == pytest.approx(0.2, abs=1e-3)
    assert "not tested" in decisions.without


# ---- other forms of a model

ALONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("partlabel", "timm", "torchvision", "lightning_fabric"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import numpy, torch
model = torch.export.load(sys.argv[1]).module()
numpy.save(sys.argv[3], model(torch.from_numpy(numpy.load(sys.argv[2])))[0].numpy())
"""


def test_torch_alone_runs_a_program(run: Run, scene: Path, tmp_path: Path) -> None:
    partlabel.export(run, tmp_path / "model.pt2", "torch-export")
    files = sorted((scene / "images").iterdir())[:3]
    np.save(tmp_path / "in.npy", pixels_of(files, 64))
    names = [str(tmp_path / name) for name in ("model.pt2", "in.npy", "out.npy")]
    subprocess.run([sys.executable, "-c", ALONE, *names], check=True)
    predicted = scores_of(partlabel.predict(run, files))
    assert np.abs(np.load(tmp_path / "out.npy") - predicted).max() < 1e-4
    program = torch.export.load(str(tmp_path / "model.pt2")).module()
    given = np.repeat(np.repeat(pixels_of(files[:1]), 3, axis=1), 2, axis=2)
    assert program(torch.from_numpy(given))[0].shape == (1, 5)


@pytest.mark.parametrize("size", [(300, 200), (40, 50)], ids=str)
def test_a_program_resizes_as_pillow_does(size: tuple[int, int]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    wanted = Image.fromarray(noise).resize((64, 64), Image.Resampling.BICUBIC)
    resize: Any = FromPixels(torch.nn.Identity(), 64, "bicubic")  # type: ignore[arg-type]
    resized = resize(torch.from_numpy(noise)[None])[0].permute(1, 2, 0).numpy()
    apart = np.abs(resized.astype(int) - np.asarray(wanted))
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.01


@pytest.mark.parametrize("settings", [{}, {"reduce": 4}, {"frozen": "lower"}], ids=str)
def test_timm_reads_a_hub_folder(settings: dict[str, Any], scene: Path, tmp_path: Path) -> None:
    data: Any = timm.data
    run = trained(scene, tmp_path / "run", **{**FROZEN, **settings})
    partlabel.export(run, tmp_path / "hub", "hub", tested=False)
    network: Any = timm.create_model(f"local-dir:{tmp_path / 'hub'}", pretrained=True).eval()
    config = data.resolve_model_data_config(network)
    transform = data.create_transform(**config)
    file = scene / "images" / "000001.png"
    model = partlabel.load(run)
    with torch.no_grad():
        given = transform(Image.open(file).convert("RGB"))[None]
        images = torch.from_numpy(pixels_of([file], 64)).permute(0, 3, 1, 2)
        assert torch.allclose(network(given), model(images), atol=1e-3)
    assert network.pretrained_cfg["label_names"] == run.record.classes
    card = (tmp_path / "hub" / "README.md").read_text()
    for words in ("## Data", "no guarantee", "## Limits", "validation images"):
        assert words in card
    used: dict[str, Any] = {}
    code = card.split("```python\n")[2].split("```")[0]
    exec(code.replace('"hub/', f'"{tmp_path}/hub/'), used)
    with torch.no_grad():
        probabilities = used["probabilities"](network(given)).numpy()
    assert probabilities == pytest.approx(scores_of(partlabel.predict(run, file)), abs=1e-3)


def test_a_model_card_says_what_a_run_on_folds_was_measured_on(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = np.where(generator.random((200, 2)) < 0.4, 1, -1)
    vectors = labels + generator.normal(0, 1.0, labels.shape)
    ids = [f"{n:03}" for n in range(200)]
    np.savez(tmp_path / "v.npz", ids=np.array(ids), vectors=vectors.astype(np.float32))
    settings: dict[str, Any] = {"budget": 3, "folds": 3, "reserve": 0.2, "out": tmp_path / "run"}
    run = partlabel.train(
        LabelTable(ids, ["a", "b"], labels), features=tmp_path / "v.npz", **settings
    )
    done = partlabel.export(run, tmp_path / "hub", "hub")
    reserved = run.selection.hidden
    assert reserved is not None
    assert done.about["reserved_labels"] == reserved.sum() > 0
    card = (tmp_path / "hub" / "README.md").read_text()
    assert f"| single labels reserved for tests, in images trained on | {reserved.sum()} |" in card
    assert "scored by models that were not trained on them" in card
    assert "validation images:" not in card


def test_names_of_classes_add_no_markup_to_a_model_card(scene: Path, tmp_path: Path) -> None:
    table = partlabel.read_labels(scene / "labels.csv")
    names = ["<script>alert(1)</script>", "a|b", "[x](javascript:y)", *table.classes[3:]]
    renamed = partlabel.LabelTable(list(table.ids), names, table.dense(), table.splits)
    settings = {**FROZEN, "cache": tmp_path / "cache"}
    run = partlabel.train(renamed, scene / "images", tmp_path / "run", **settings)
    partlabel.export(run, tmp_path / "hub", "hub", tested=False)
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "| &lt;script&gt;alert(1)&lt;/script&gt; |" in card
    assert r"| a\|b |" in card
    assert r"| \[x\](javascript:y) |" in card


def test_a_hub_folder_of_another_head_has_the_whole_model_as_a_program(
    scene: Path, tmp_path: Path
) -> None:
    run = trained(scene, tmp_path / "run", **{**FROZEN, "head": "saliency"})
    done = partlabel.export(run, tmp_path / "hub", "hub", tested=False)
    assert "timm reads the backbone" in done.notes[1]
    assert (tmp_path / "hub" / "model.pt2").is_file()
    network: Any = timm.create_model(f"local-dir:{tmp_path / 'hub'}", pretrained=True)
    assert network.num_classes == 0


def test_linear_heads_behind_reductions_are_one_layer() -> None:
    torch.manual_seed(0)
    reduction = Reduction(6, 3)
    reduction.basis.copy_(torch.randn(3, 6))
    reduction.mean.copy_(torch.randn(6))
    head = Ensemble(
        [
            Branch(torch.nn.Identity(), [Linear(6, 2), Linear(6, 2)], [0.3, 0.7]),
            Branch(reduction, [Linear(3, 2)], [0.5]),
        ]
    )

    class Model:
        backbone = type("B", (), {"reduction": torch.nn.Identity()})

    Model.head = head  # type: ignore[attr-defined]
    layer = linear_layer(Model)  # type: ignore[arg-type]
    assert layer is not None
    maps = torch.randn(4, 6, 5, 5)
    expected = head(maps)
    assert torch.allclose(maps.mean(dim=(2, 3)) @ layer[0].T + layer[1], expected, atol=1e-5)


# ---- what load hands out


def test_load_hands_out_thresholds_and_calibration(run: Run, scene: Path) -> None:
    model = partlabel.load(run)
    kept = [np.nan if value is None else value for value in run.record.thresholds]
    assert np.array_equal(model.thresholds, kept, equal_nan=True)
    assert model.calibration is not None
    files = sorted((scene / "images").iterdir())[:2]
    images = torch.from_numpy(pixels_of(files, 64)).permute(0, 3, 1, 2)
    with torch.no_grad():
        raw = model(images).double().numpy()
    expected = 1 / (1 + np.exp(-(raw * model.calibration.slopes + model.calibration.intercepts)))
    assert model.predict(files) == pytest.approx(expected, abs=1e-5)
    assert scores_of(partlabel.predict(run, files)) == pytest.approx(expected, abs=1e-5)


def test_tensors_that_are_no_uint8_images_are_refused_with_the_way_out(
    run: Run, scene: Path, tmp_path: Path
) -> None:
    whole = trained(scene, tmp_path / "run", **{**FROZEN, "frozen": "nothing", "epochs": 1})
    for model in (partlabel.load(run), partlabel.load(whole)):
        for images in (
            torch.rand(1, 3, 64, 64),
            torch.rand(1, 3, 80, 96),
            torch.rand(3, 64, 64),
            torch.randint(0, 256, (1, 3, 64, 64)),
        ):
            with pytest.raises(InputError, match=r"0 to 255 .*torch\.uint8"):
                model(images)
        with pytest.raises(InputError, match=r"permute\(0, 3, 1, 2\)"):
            model(torch.zeros((1, 64, 64, 3), dtype=torch.uint8))


# ---- errors, and the table


def test_wrong_calls_are_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="did you mean 'onnx'"):
        partlabel.export(run, tmp_path / "a", "onx")
    (tmp_path / "there.onnx").write_text("")
    with pytest.raises(FileError, match="--overwrite"):
        partlabel.export(run, tmp_path / "there.onnx", "onnx")
    with pytest.raises(FileError, match="not an empty folder"):
        partlabel.export(run, tmp_path, "hub", overwrite=True)
    with pytest.raises(FileError, match="folder does not exist"):
        partlabel.export(run, tmp_path / "no" / "model.onnx", "onnx")
    with pytest.raises(InputError, match=r"something\.pt2"):
        partlabel.export(run, tmp_path / "model.bin", "torch-export", tested=False)
    with pytest.raises(InputError, match="--resized"):
        partlabel.export(run, tmp_path / "a", "hub", resized=True)
    with pytest.raises(FileError, match="all labels known"):
        partlabel.export(partly_known(run), tmp_path / "c.json", "cleanlab")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'partlabel\[onnx\]'"):
        partlabel.export(run, tmp_path / "model.onnx", "onnx")


def partly_known(run: Run) -> Run:
    """The same run, whose labels of one class are forgotten."""
    other = Run(run.folder)
    selection = run.selection
    matrix = selection.labels.dense()
    matrix[:, 0] = 0
    table = LabelTable(selection.labels.ids, selection.labels.classes, matrix)
    other.__dict__["selection"] = dataclasses.replace(selection, labels=table, hidden=None)
    return other


def test_commands_that_write_labels_name_the_command_for_models(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Run
) -> None:
    labels = str(scene / "labels.csv")
    assert main(["convert", labels, str(tmp_path / "m.onnx"), "--to", "onnx"]) == 2
    assert "partlabel export RUN OUT --to onnx" in " ".join(capsys.readouterr().err.split())
    assert main(["complete", str(run.folder), "-o", str(tmp_path / "m"), "--to", "hub"]) == 2
    assert "partlabel export" in " ".join(capsys.readouterr().err.split())


def test_the_command_says_what_it_wrote_and_that_there_is_no_guarantee(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", str(run.folder), str(tmp_path / "m.pt2"), "--to", "torch-export"]
    assert main([*words, "--untested"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no guarantee: it was not tested" in said
    assert main(words) == 2
    assert "already exists" in " ".join(capsys.readouterr().err.split())


def test_every_writable_format_is_a_target_and_nothing_is_named_twice() -> None:
    writable = {name for name, format in FORMATS.items() if format.writable}
    assert {name for name, target in TARGETS.items() if target.labels_too} == writable
    models = {"onnx", "torch-export", "hub", "cleanlab"}
    assert {*TARGETS} == writable | models


def test_the_table_of_targets_in_the_docs_is_true() -> None:
    page = Path(__file__).parent.parent / "docs" / "reference" / "targets.md"
    table = page.read_text().split("| target |")[1].split("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    written = {}
    for row in rows:
        name, content, kind, commands, extra = (cell.strip() for cell in row.strip("|").split("|"))
        written[name.strip("`")] = (content, kind, commands, extra.strip("`"))
    for name, target in TARGETS.items():
        others = "convert, complete, predict, export" if target.labels_too else "export"
        kind = "folder" if target.is_folder else "file"
        assert written.pop(name) == (target.about, kind, others, target.extra or "none"), name
    assert not written
