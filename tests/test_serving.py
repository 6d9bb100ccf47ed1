"""The web service of the documentation, as a reader would run it."""

import runpy
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import partlabel
from partlabel import read_labels

SERVICE = Path(__file__).parent.parent / "docs" / "how-to" / "serve.py"


@pytest.mark.filterwarnings("ignore::partlabel.base.errors.PartlabelWarning")
def test_a_posted_jpeg_gets_the_scores_of_predict(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a small image, and of one that is much larger than the run's."""
    client: Any = pytest.importorskip("fastapi.testclient")
    pytest.importorskip("onnxruntime")
    run = partlabel.train(
        read_labels(scene / "labels.csv"),
        scene / "images",
        tmp_path / "run",
        cache=tmp_path / "cache",
        method="bce",
        frozen="all",
        epochs=1,
        backbone="test_efficientnet",
        weights="none",
        size=64,
    )
    partlabel.export(run, tmp_path / "model.onnx", "onnx")
    small = Image.open(scene / "images" / "000000.png")
    small.save(tmp_path / "small.jpg", exif=_turned())
    small.resize((1001, 803)).save(tmp_path / "large.jpg", exif=_turned())
    monkeypatch.chdir(tmp_path)
    service = client.TestClient(runpy.run_path(str(SERVICE))["app"])
    for photo in (tmp_path / "small.jpg", tmp_path / "large.jpg"):
        answer = service.post("/", content=photo.read_bytes())
        assert answer.status_code == 200
        predicted = partlabel.predict(run, photo)
        scores = dict(zip(predicted.classes, predicted.cells.scores_or_nan().tolist(), strict=True))
        given = {name: one["probability"] for name, one in answer.json().items()}
        assert given == pytest.approx(scores, abs=1e-3)
        assert {one["decision"] for one in answer.json().values()} <= {1, 0, -1}
    assert service.post("/", content=b"no image").status_code == 400
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000)  # a service has the limit of Pillow
    for name in ("too-large.png", "for-ghostscript.eps"):
        Image.new("L", (50, 50) if name.endswith(".png") else (8, 8)).save(tmp_path / name)
        assert service.post("/", content=(tmp_path / name).read_bytes()).status_code == 400


def _turned() -> Image.Exif:
    """Says that an image is to be turned, as cameras write it."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif
