"""All commands on images in shards and lists: the same bits as on the folder."""

import signal
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partlabel
from partlabel.base.errors import InputError, PartlabelWarning
from partlabel.cli import main
from partlabel.labels.formats import Notes
from partlabel.labels.inspection import inspect
from partlabel.models.features.vector_files import VectorFile
from partlabel.output.review.review_images import MissingImageError, ReviewImages
from partlabel.training import trainer
from partlabel.training.run import Run

TINY: dict[str, Any] = {
    "method": "bce", "backbone": "test_efficientnet", "weights": "none", "size": 64,
    "batch": 8, "epochs": 2, "lr": 1e-2, "split_duplicates": True, "reserve": 0.5,
}  # fmt: skip
FORMS = ("tar", "parquet", "list")


def write_form(form: str, images: Path, folder: Path) -> Path:
    """The images of a folder in another form; not in the order of their names."""
    files = sorted(images.iterdir(), key=lambda path: path.name[::-1])
    if form == "tar":
        for number, part in enumerate((files[:15], files[15:])):
            with tarfile.open(folder / f"shard-{number:03}.tar", "w") as archive:
                for path in part:
                    archive.add(path, path.name)
        return folder / "shard-{000..001}.tar"
    if form == "parquet":
        rows = [{"bytes": path.read_bytes(), "path": path.name} for path in files]
        for number, half in enumerate((rows[:25], rows[25:])):
            table = pa.table({"image": half})
            pq.write_table(table, folder / f"train-{number}.parquet", row_group_size=7)
        return folder / "train-*.parquet"
    lines = "".join(f"{path.name},{path}\n" for path in sorted(files))
    (folder / "list.csv").write_text(f"image,path\n{lines}")
    return folder / "list.csv"


@pytest.fixture(params=FORMS)
def stored(request: pytest.FixtureRequest, scene: Path, tmp_path: Path) -> Path:
    return write_form(request.param, scene / "images", tmp_path)


def same_weights(one: Run, other: Run) -> bool:
    a, b = (run.folder / "best.safetensors" for run in (one, other))
    return a.read_bytes() == b.read_bytes()


@pytest.mark.filterwarnings("ignore::partlabel.base.errors.PartlabelWarning")  # so few labels
def test_every_command_gives_what_it_gives_on_the_folder(
    stored: Path, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = scene / "partial.csv"
    runs, vectors = [], []
    tables: list[list[Any]] = []
    for name, images in (("folder", scene / "images"), ("stored", stored)):
        monkeypatch.setenv("PARTLABEL_CACHE", str(tmp_path / f"cache-{name}"))
        run = partlabel.train(labels, images, tmp_path / name, frozen="all", **TINY)
        runs.append(run)
        figures = partlabel.evaluate(run, scene / "labels.csv", images, split="test")
        done = partlabel.complete(run, min_precision=0.5)
        predicted = partlabel.predict(run, images)
        assert sorted(predicted.ids) == sorted(partlabel.read_labels(labels).ids)
        by_name = predicted.subset(np.argsort(np.array(list(predicted.ids))))
        tables.append([figures["mAP"], done.table.scores(), by_name.scores()])
        network = {k: TINY[k] for k in ("backbone", "weights", "size")}
        partlabel.embed(images, tmp_path / f"{name}.npz", **network)
        vectors.append(VectorFile(tmp_path / f"{name}.npz"))
        page = partlabel.report(run).read_text()
        assert page.count("data:image/jpeg") > 5
        result = inspect(partlabel.read_labels(labels), Notes(), images).files
        assert result is not None
        assert (result.found, result.missing, result.unreadable) == (40, [], {})
    assert same_weights(*runs)
    assert tables[0][0] == tables[1][0]
    for one, other in zip(tables[0][1:], tables[1][1:], strict=True):
        assert np.array_equal(one, other, equal_nan=True)
    rows = vectors[1].locate(vectors[0].ids)
    assert np.array_equal(vectors[0].read(np.arange(40)), vectors[1].read(rows))


def test_views_and_workers_are_those_of_the_folder(
    stored: Path, scene: Path, tmp_path: Path
) -> None:
    """Random views, and processes that decode, while the backbone trains."""
    call = {**TINY, "method": "sr", "frozen": "nothing", "cache": tmp_path / "cache"}
    runs = [
        partlabel.train(scene / "partial.csv", images, tmp_path / str(n), workers=workers, **call)
        for n, (images, workers) in enumerate([(scene / "images", 0), (stored, 2)])
    ]
    assert same_weights(*runs)


def test_a_run_on_shards_goes_on_to_the_same_bits(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = write_form("tar", scene / "images", tmp_path)
    call = {**TINY, "frozen": "nothing", "cache": tmp_path / "cache"}
    whole = partlabel.train(scene / "partial.csv", images, tmp_path / "whole", **call)
    take, steps = trainer.Trainer._train_step, 0

    def stop_at_fourth(self: Any, *rest: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == 4:
            signal.raise_signal(signal.SIGTERM)
        take(self, *rest)

    monkeypatch.setattr(trainer.Trainer, "_train_step", stop_at_fourth)
    with pytest.raises(trainer.InterruptedTrainingError):
        partlabel.train(scene / "partial.csv", images, tmp_path / "cut", **call)
    cut = partlabel.train(
        scene / "partial.csv", images, tmp_path / "cut", resume=True, workers=2, **call
    )
    assert steps > 5
    assert same_weights(whole, cut)


def break_in_tar(folder: Path) -> None:
    """Overwrite the content of one image, so that the archive itself stays whole."""
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as archive:
            found = [member for member in archive if member.name == "000003.png"]
        if found:
            with path.open("r+b") as stream:
                stream.seek(found[0].offset_data)
                stream.write(bytes(found[0].size))


@pytest.mark.parametrize("frozen", ["all", "nothing"])
def test_an_image_that_cannot_be_read_is_reported_once(
    frozen: str, scene: Path, tmp_path: Path
) -> None:
    images = write_form("tar", scene / "images", tmp_path)
    break_in_tar(tmp_path)
    call = {**TINY, "val": 0.3, "reserve": 0, "frozen": frozen, "cache": tmp_path / "cache"}
    with pytest.warns(PartlabelWarning, match=r"left out: .*000003\.png") as caught:
        run = partlabel.train(scene / "labels.csv", images, tmp_path / "run", workers=2, **call)
    assert len(caught) == 1
    (message,) = run.record.broken
    assert message.endswith(".tar/000003.png: cannot identify image file")
    with pytest.raises(InputError, match=r"000003\.png: cannot be decoded"):
        partlabel.train(scene / "labels.csv", images, tmp_path / "b", strict=True, **call)


def test_a_missing_image_or_shard_is_named(
    stored: Path, scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = partlabel.read_labels(scene / "labels.csv")
    names = [*list(table.ids)[:-1], "nowhere.png"]
    labels = tmp_path / "labels.cells"
    partlabel.write_labels(
        partlabel.LabelTable(names, table.classes, table.dense()), labels, "cells"
    )
    call = ["--backbone", "test_efficientnet", "--weights", "none", "--method", "bce", "--frozen",
            "--images", str(stored), "--out", str(tmp_path / "run")]  # fmt: skip
    assert main(["train", str(labels), *call]) == 2
    error = capsys.readouterr().err
    assert "1 image of the label file not found: 'nowhere.png'" in error
    assert "is this the right folder" not in error
    for path in sorted(tmp_path.glob(f"*{stored.suffix}")):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        assert main(["train", str(scene / "labels.csv"), *call]) == 2
        assert f"error: {path}" in capsys.readouterr().err
        path.write_bytes(content)
    path.unlink()
    assert main(["train", str(scene / "labels.csv"), *call]) == 2
    assert (
        "not found" if stored.suffix == ".parquet" else "o such file"
    ) in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_finds_its_shards_again(scene: Path, tmp_path: Path) -> None:
    """Moved together with the run, or named anew."""
    home = tmp_path / "home"
    home.mkdir()
    images = write_form("parquet", scene / "images", home)
    run = partlabel.train(
        scene / "partial.csv", images, home / "run", frozen="all", cache=tmp_path / "c", **TINY
    )
    figures = partlabel.evaluate(run, reserved=True, cache=tmp_path / "c")
    home.rename(tmp_path / "moved")
    again = Run(tmp_path / "moved" / "run")
    assert again.images == tmp_path / "moved" / "train-*.parquet"
    assert partlabel.evaluate(again, reserved=True, cache=tmp_path / "c") == figures
    for path in (tmp_path / "moved").glob("*.parquet"):
        path.rename(tmp_path / path.name)
    with pytest.raises(InputError, match="not here any more; name them with --images"):
        again.images  # noqa: B018
    found = partlabel.evaluate(
        again, images=tmp_path / "train-{0..1}.parquet", reserved=True, cache=tmp_path / "c"
    )
    assert found == figures


def test_training_images_are_recognized_in_another_form(scene: Path, tmp_path: Path) -> None:
    images = write_form("tar", scene / "images", tmp_path)
    call = {**TINY, "frozen": "all", "cache": tmp_path / "c"}
    run = partlabel.train(scene / "partial.csv", images, tmp_path / "run", **call)
    table = partlabel.read_labels(scene / "labels.csv")
    renamed = partlabel.LabelTable([f"x/{n}" for n in table.ids], table.classes, table.dense())
    with pytest.warns(PartlabelWarning, match="images were trained on"):
        partlabel.evaluate(run, renamed, tmp_path / "shard-{000,001}.tar", cache=tmp_path / "c")


@pytest.mark.filterwarnings("ignore::partlabel.base.errors.PartlabelWarning")  # so few labels
def test_complete_finds_images_that_the_labels_do_not_mention(
    stored: Path, scene: Path, tmp_path: Path
) -> None:
    table = partlabel.read_labels(scene / "partial.csv")
    few = table.subset(np.flatnonzero(~table.in_split("test")))
    call = {**TINY, "frozen": "all", "cache": tmp_path / "c"}
    run = partlabel.train(few, stored, tmp_path / "run", **call)
    done = partlabel.complete(run, min_precision=0.5, cache=tmp_path / "c")
    assert len(few) == 30
    assert len(done.table) == 40


def test_the_pictures_of_a_review_come_from_shards(
    stored: Path, scene: Path, tmp_path: Path
) -> None:
    names = sorted(path.name for path in (scene / "images").iterdir())
    ours = ReviewImages(stored, names, tmp_path / "thumbnails")
    folder = ReviewImages(scene / "images", names, tmp_path / "others")
    assert ours.thumbnail(7) == folder.thumbnail(7)
    assert ours.thumbnail(7) == folder.thumbnail(7)  # kept
    assert ours.large(3) == folder.large(3)
    if stored.suffix == ".tar":
        for path in tmp_path.glob("*.tar"):
            path.unlink()
        with pytest.raises(MissingImageError, match=r"000007\.png: No such file"):
            ours.thumbnail(7)


def test_a_comparison_on_shards(stored: Path, scene: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"labels: {scene / 'labels.csv'}\nimages: '{stored.name}'\nstrategies: [{{strategy: "
        "partial, proportions: [0.9]}]\nsettings: {epochs: 1, backbone: test_efficientnet, "
        "weights: none, size: 64, frozen: all}\nmethods:\n  - {name: BCE, method: bce}\n"
    )
    benchmark = partlabel.bench(spec, tmp_path / "out", cache=tmp_path / "c")
    assert len(benchmark.results) == 1


@pytest.mark.parametrize("form", ["tar", "list"])
def test_an_exported_dataset_has_the_images_of_shards(
    form: str, scene: Path, tmp_path: Path
) -> None:
    """Under numbers: a name in an archive could be any path."""
    images = write_form(form, scene / "images", tmp_path)
    call = {**TINY, "frozen": "all", "cache": tmp_path / "c"}
    run = partlabel.train(scene / "partial.csv", images, tmp_path / "run", **call)
    partlabel.export(run, tmp_path / "out", "hf", cache=tmp_path / "c")
    written = sorted((tmp_path / "out").rglob("*.png"))
    assert len(written) == 40
    contents = {path.read_bytes() for path in (scene / "images").iterdir()}
    assert {path.read_bytes() for path in written} == contents
    assert all(path.stem.isdigit() and len(path.stem) == 8 for path in written)
