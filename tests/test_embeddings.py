"""Features that are given instead of images: files, errors, and all commands on them."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

import partlabel
from partlabel import LabelTable, write_labels
from partlabel.base.errors import InputError
from partlabel.cli import main
from partlabel.labels.names import Names
from partlabel.models import Backbone
from partlabel.models.features.vector_files import VectorFile
from partlabel.models.features.vector_formats import SUFFIXES
from partlabel.models.features.vector_writing import write_vectors
from partlabel.training.run import Run

Array = NDArray[np.float32]
SETTINGS: dict[str, Any] = {"method": "bce", "epochs": 4, "lr": 1e-2, "seed": 3}


def made(images: int = 80, dimension: int = 6, classes: int = 3) -> tuple[Array, LabelTable]:
    """Vectors whose first numbers are the classes, and labels of which some are unknown."""
    draw = np.random.default_rng(0)
    truth = draw.random((images, classes)) < 0.4
    vectors = draw.normal(size=(images, dimension)).astype(np.float32) * 0.3
    vectors[:, :classes] += 2 * truth
    known = draw.random(truth.shape) < 0.7
    labels = np.where(known, np.where(truth, 1, -1), 0).astype(np.int8)
    ids = [f"sound{n:03}.wav" for n in range(images)]
    splits = np.where(np.arange(images) % 4 == 0, "test", "train").tolist()
    return vectors, LabelTable(ids, [f"c{j}" for j in range(classes)], labels, splits)


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    vectors, table = made()
    write_vectors(tmp_path / "sounds.npz", vectors, list(table.ids))
    write_labels(table, tmp_path / "labels.csv")
    return tmp_path


# ---- files


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read(suffix: str, tmp_path: Path) -> None:
    vectors, table = made()
    path = tmp_path / f"v{suffix}"
    write_vectors(path, vectors, list(table.ids))
    file = VectorFile(path)
    assert (len(file), file.dimension, file.ids) == (80, 6, table.ids)
    rows = np.array([7, 0, 79, 7])
    np.testing.assert_array_equal(file.read(rows).numpy(), vectors[rows])


def test_vectors_of_many_parts_and_other_types_are_read(tmp_path: Path) -> None:
    vectors, table = made(10)
    lists = pa.array(vectors.astype(np.float64).tolist(), pa.list_(pa.float64()))
    whole = pa.table({"note": ["x"] * 10, "file": list(table.ids), "embeddings": lists})
    parts = pa.concat_tables([whole.slice(0, 3), whole.slice(3, 4), whole.slice(7)])
    with pa.ipc.new_file(tmp_path / "v.arrow", whole.schema) as writer:
        for batch in parts.to_batches():
            writer.write_batch(batch)
    pyarrow.parquet.write_table(whole, tmp_path / "v.parquet", row_group_size=4)
    half = torch.from_numpy(vectors).bfloat16()
    save_file({"x": half, "other": torch.zeros(3)}, tmp_path / "v.safetensors")
    ids = tmp_path / "ids.csv"
    ids.write_text("n,image\n" + "".join(f"1,{name}\n" for name in table.ids))
    rows = np.array([9, 2, 3, 6, 7])
    for file in (VectorFile(tmp_path / "v.arrow"), VectorFile(tmp_path / "v.parquet")):
        assert file.ids == table.ids
        np.testing.assert_array_equal(file.read(rows).numpy(), vectors[rows])
    file = VectorFile(tmp_path / "v.safetensors", ids)
    assert file.ids == table.ids
    np.testing.assert_array_equal(file.read(rows).numpy(), half.float().numpy()[rows])


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".arrow"])
def test_a_large_file_opens_at_once(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"large{suffix}"
    vectors = np.zeros((200_000, 256), dtype=np.float32)
    write_vectors(path, vectors, [str(n) for n in range(len(vectors))])
    start = time.perf_counter()
    file = VectorFile(path)
    assert time.perf_counter() - start < 0.25
    assert not isinstance(file._parts[0][0], np.ndarray) or not file._parts[0][0].flags.owndata


def test_ids_are_found_without_suffix_and_folder(tmp_path: Path) -> None:
    write_vectors(
        tmp_path / "v.npz", np.ones((3, 2), dtype=np.float32), ["a/x.jpg", "b/y.png", "z"]
    )
    file = VectorFile(tmp_path / "v.npz")
    assert file.locate(Names(["y", "a/x", "z.jpg", "x.jpg"])).tolist() == [1, 0, 2, 0]


def use_all(path: Path) -> None:
    file = VectorFile(path)
    file.locate(file.ids)
    file.read(np.arange(len(file)))


def pickled(path: Path) -> None:
    np.save(path, np.array([[{}]], dtype=object), allow_pickle=True)


def broken_file(path: Path) -> None:
    path.write_bytes(b"nonsense")


def flat(path: Path) -> None:
    np.save(path, np.zeros(4))


def without_ids(path: Path) -> None:
    np.save(path, np.zeros((4, 2)))


def two_arrays(path: Path) -> None:
    np.savez(path, a=np.zeros((2, 2)), b=np.zeros((2, 2)))


def twice(path: Path) -> None:
    write_vectors(path, np.zeros((2, 2), dtype=np.float32), ["a", "a"])


def too_few(path: Path) -> None:
    np.savez(path, features=np.zeros((3, 2)), ids=np.array(["a", "b"]))


def ragged(path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"id": ["a", "b"], "x": [[1.0], [1.0, 2.0]]}), path)


def missing_vector(path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"id": ["a", "b"], "x": [[1.0], None]}), path)


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("v.npy", pickled, "cannot be read .*Python objects"),
        ("v.npy", broken_file, "cannot be read"),
        ("v.npz", broken_file, "cannot be read"),
        ("v.parquet", broken_file, "cannot be read"),
        ("v.arrow", broken_file, "cannot be read"),
        ("v.safetensors", broken_file, "cannot be read"),
        ("v.npy", flat, r"float64 of shape \[4\]; features are numbers"),
        ("v.npy", without_ids, "has no ids; .*--feature-ids"),
        ("v.npz", two_arrays, "which array of features is meant: 'a', 'b'"),
        ("v.npz", twice, "the image name 'a' occurs more than once"),
        ("v.npz", too_few, "2 ids for 3 vectors"),
        ("v.parquet", ragged, "row 1: a vector has 2 numbers, and the first 1"),
        ("v.parquet", missing_vector, "row 1: a vector is missing"),
        ("v.txt", broken_file, "features are read from .npy"),
    ],
)
def test_bad_files(
    name: str, write: Callable[[Path], None], message: str, tmp_path: Path
) -> None:  # fmt: skip
    path = tmp_path / name
    write(path)
    with pytest.raises(InputError, match=message) as error:
        use_all(path)
    assert str(error.value).startswith(str(path))


# ---- training


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.filterwarnings("ignore:.*belong together")
def test_embedded_images_give_the_run_on_images(scene: Path, tmp_path: Path, mirror: bool) -> None:
    weights = tmp_path / "net.pt"
    torch.save(Backbone("test_efficientnet", "none", "all", 64).lower.state_dict(), weights)
    network: dict[str, Any] = {
        "backbone": "test_efficientnet", "weights": str(weights), "size": 64, "mirror": mirror
    }  # fmt: skip
    file = partlabel.embed(scene / "images", tmp_path / "v.npy", cache=tmp_path, **network)
    assert file.ids[0] == "000000.png"
    labels = scene / "partial.csv"
    from_images = partlabel.train(
        labels,
        scene / "images",
        tmp_path / "a",
        frozen="all",
        cache=tmp_path,
        **network,
        **SETTINGS,
    )
    from_vectors = partlabel.train(labels, out=tmp_path / "b", features=file.path, **SETTINGS)
    a, b = (partlabel.evaluate(run, reserved=True) for run in (from_images, from_vectors))
    assert a["mAP"] == pytest.approx(b["mAP"], abs=1e-6)
    heads = [run.classifier().head.state_dict() for run in (from_images, from_vectors)]
    for name, value in heads[0].items():
        torch.testing.assert_close(value, heads[1][name], rtol=0, atol=1e-6)


def test_all_commands_work_on_features(sounds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, labels, features = sounds / "run", str(sounds / "labels.csv"), str(sounds / "sounds.npz")
    call = ["train", labels, "--features", features, "--method", "bce", "--optimizer", "lbfgs"]
    assert main([*call, "--weight-decay", "1e-3", "--reserve", "0.5", "--out", str(run)]) == 0
    assert (
        main([*call, "--weight-decay", "1e-3", "--reserve", "0.5", "--out", str(run), "--resume"])
        == 0
    )
    record = Run(run).record
    assert record.images is None
    assert record.features is not None
    assert record.features.dimension == 6
    assert main(["evaluate", str(run), labels, "--split", "test"]) == 0
    assert main(["evaluate", str(run), "--reserved"]) == 0
    assert main(["predict", str(run), "--features", features, "-o", str(sounds / "p.csv")]) == 0
    assert len(partlabel.read_labels(sounds / "p.csv")) == 80
    assert main(["complete", str(run), "-o", str(sounds / "c.csv"), "--min-precision", "0.5"]) == 0
    assert main(["report", str(run), "--landscape"]) == 0
    page = (run / "report.html").read_text()
    assert "on given features with 6 dimensions" in page
    assert "data:image" not in page
    assert "sound0" in page
    result = partlabel.evaluate(run, labels, split="test", features=features)
    assert result["mAP"] > 0.9
    again = sounds / "again"
    config = ["--config", str(run / "config.yaml"), "--out", str(again)]
    assert main(["train", labels, "--features", features, *config]) == 0
    assert (
        partlabel.evaluate(again, reserved=True)["mAP"]
        == partlabel.evaluate(run, reserved=True)["mAP"]
    )
    capsys.readouterr()


def test_a_report_shows_images_that_are_named_too(scene: Path, tmp_path: Path) -> None:
    table = partlabel.read_labels(scene / "partial.csv")
    vectors = np.random.default_rng(0).normal(size=(len(table), 4)).astype(np.float32)
    write_vectors(tmp_path / "v.npz", vectors, list(table.ids))
    run = partlabel.train(
        table, scene / "images", tmp_path / "run", features=tmp_path / "v.npz", **SETTINGS
    )
    assert "data:image" in partlabel.report(run).read_text()


def test_bench_on_features(sounds: Path) -> None:
    spec = sounds / "spec.yaml"
    spec.write_text(
        "labels: labels.csv\nfeatures: sounds.npz\nstrategies: [{strategy: partial, "
        "proportions: [0.9]}]\nsettings: {epochs: 2, lr: 0.1}\nmethods:\n"
        "  - {name: BCE, method: bce}\n  - {name: EM, method: em}\n"
    )
    benchmark = partlabel.bench(spec, sounds / "out")
    assert [result["mAP"] > 0.6 for result in benchmark.results] == [True, True]


def test_a_run_can_be_moved_with_its_features(sounds: Path, tmp_path: Path) -> None:
    table = partlabel.read_labels(sounds / "labels.csv")
    sets = {"reserve": 0.2, **SETTINGS}
    run = partlabel.train(table, out=sounds / "run", features=sounds / "sounds.npz", **sets)
    before = partlabel.evaluate(run, reserved=True)["mAP"]
    (sounds / "deep").mkdir()
    for name in ("run", "sounds.npz"):
        (sounds / name).rename(sounds / "deep" / name)
    assert partlabel.evaluate(sounds / "deep" / "run", reserved=True)["mAP"] == before
    (sounds / "deep" / "sounds.npz").rename(sounds / "x.npz")
    with pytest.raises(InputError, match="features of the run are not here any more"):
        partlabel.evaluate(sounds / "deep" / "run", reserved=True)
    moved = partlabel.evaluate(sounds / "deep" / "run", reserved=True, features=sounds / "x.npz")
    assert moved["mAP"] == before
    (sounds / "x.npz").rename(sounds / "deep" / "sounds.npz")
    write_vectors(sounds / "deep" / "sounds.npz", made(80, 7)[0], list(table.ids))
    with pytest.raises(InputError, match="has changed since the run was trained"):
        partlabel.evaluate(sounds / "deep" / "run", reserved=True)
    with pytest.raises(InputError, match=r"vectors of 7 numbers, and .* was trained on 6"):
        partlabel.evaluate(
            sounds / "deep" / "run", reserved=True, features=sounds / "deep" / "sounds.npz"
        )


@pytest.mark.parametrize("reduce", [None, 3])
def test_reduced_features(reduce: int | None, sounds: Path) -> None:
    run = partlabel.train(
        sounds / "labels.csv",
        out=sounds / "run",
        features=sounds / "sounds.npz",
        reduce=reduce,
        method="bce",
        optimizer="lbfgs",
        weight_decay=1e-3,
    )
    assert run.classifier().backbone.channels == (reduce or 6)
    assert partlabel.evaluate(run, sounds / "labels.csv", split="test")["mAP"] > 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "sr"}, "'sr' compares views of images"),
        ({"method": "lac"}, "'lac' compares views of images"),
        ({"method": "bce", "head": "saliency"}, "the head 'saliency' looks at the places"),
        ({"method": "en-scl"}, "the head of the method 'en-scl' looks at the places"),
        ({"method": "bce", "backbone": "resnet18"}, "--backbone resnet18 has no effect with"),
        ({"method": "bce", "size": 64}, "--size has no effect with --features"),
        ({"method": "bce", "frozen": "lower"}, "--unfreeze has no effect"),
    ],
)
def test_what_features_cannot_do_is_refused(
    settings: dict[str, Any], message: str, sounds: Path
) -> None:
    with pytest.raises(InputError, match=message):
        partlabel.train(
            sounds / "labels.csv", out=sounds / "run", features=sounds / "sounds.npz", **settings
        )
    assert not (sounds / "run" / "run.json").exists()


def test_ids_that_do_not_match_and_broken_vectors(sounds: Path) -> None:
    vectors, table = made()
    write_vectors(sounds / "few.npz", vectors[:70], list(table.ids[:70]))
    with pytest.raises(InputError, match=r"few.npz: 8 of 60 images have no features: 'sound07"):
        partlabel.train(table, out=sounds / "run", features=sounds / "few.npz", **SETTINGS)
    vectors[5, 2] = np.inf
    write_vectors(sounds / "inf.npz", vectors, list(table.ids))
    with pytest.raises(InputError, match=r"inf.npz, row 5 \('sound005.wav'\): a feature is inf"):
        partlabel.train(table, out=sounds / "run", features=sounds / "inf.npz", **SETTINGS)
    assert not (sounds / "run").exists()


def test_images_and_features_are_not_mixed_up(
    sounds: Path, scene: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = partlabel.train(
        sounds / "labels.csv", out=sounds / "run", features=sounds / "sounds.npz", **SETTINGS
    )
    with pytest.raises(InputError, match="was trained on features; name a file"):
        partlabel.predict(run, scene / "images")
    with pytest.raises(InputError, match="name images, or a file with --features"):
        partlabel.predict(run)
    with pytest.raises(InputError, match="--images, or a file with --features"):
        partlabel.train(sounds / "labels.csv", out=sounds / "other", **SETTINGS)
    with pytest.raises(InputError, match="--feature-ids has no effect"):
        partlabel.train(sounds / "labels.csv", out=sounds / "o", feature_ids="x", **SETTINGS)
    images = partlabel.train(
        scene / "partial.csv", scene / "images", sounds / "images", frozen="all", size=64,
        backbone="test_efficientnet", weights="none", cache=sounds, method="bce", epochs=1,
    )  # fmt: skip
    with pytest.raises(InputError, match="was trained on images"):
        partlabel.evaluate(images, reserved=True, features=sounds / "sounds.npz")
    call = ["embed", str(scene / "images"), "-o", str(sounds / "v.csv")]
    assert main(call) == 2
    assert "must end in" in capsys.readouterr().err


def test_embed_leaves_out_broken_images(
    scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.png").write_bytes((scene / "images" / "000000.png").read_bytes())
    (folder / "b.png").write_bytes(b"no image")
    out = tmp_path / "v.safetensors"
    call = ["embed", str(folder), "-o", str(out), "--backbone", "test_efficientnet"]
    call += ["--weights", "none", "--size", "64", "--cache", str(tmp_path / "cache")]
    assert main(call) == 0
    assert "left out" in capsys.readouterr().err
    assert VectorFile(out).ids == ["a.png"]
    assert main(call) == 2
