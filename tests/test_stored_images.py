"""Images in shards and lists: indexed exactly, damaged files named, no path ever followed."""

import io
import os
import pickle
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from partlabel.base.errors import FileError, InputError
from partlabel.images import parquet_files, stored
from partlabel.images.batches import in_batches
from partlabel.images.collection import Images
from partlabel.images.folder import why_unreadable
from partlabel.images.named_images import are_here, list_images, open_images, shard_files
from partlabel.images.pictures import BrokenPictureError, Pictures, read_picture
from partlabel.images.stored import Member, read_content, resolved, size_of, version_of
from partlabel.models.features import content_key
from partlabel.training.near_duplicates import equal_files


def photo(shade: int, form: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (12, 8), (shade, 255 - shade, 90)).save(stream, form)
    return stream.getvalue()


def write_tar(path: Path, members: Sequence[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return path


def write_parquet(path: Path, rows: Sequence[tuple[str | None, bytes | None]]) -> Path:
    """As ``datasets`` writes it."""
    images = [{"bytes": content, "path": name} for name, content in rows]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({"label": list(range(len(rows))), "image": pa.array(images, kind)})
    pq.write_table(table, path, row_group_size=3)
    return path


def contents(images: Images) -> dict[str, bytes]:
    return {name: read_content(images.at(name)) for name in images.names}


PHOTOS = [(f"p{number}.png", photo(20 * number)) for number in range(8)]


def test_images_of_an_archive_are_read_where_they_lie(tmp_path: Path) -> None:
    long = f"folder/{'x' * 200}.jpg"
    others = [("p0.json", b"{}"), ("readme", b""), ("./sub/P9.JPG", b"last"), (long, b"long")]
    path = write_tar(tmp_path / "a.tar", [*PHOTOS, *others])
    images = open_images(path)
    assert contents(images) == {**dict(PHOTOS), "sub/P9.JPG": b"last", long: b"long"}
    assert images.names == sorted(images.names)
    first = images.at("p1.png")
    assert size_of(first) == len(PHOTOS[1][1])
    assert str(first) == f"{path}/p1.png"
    assert images.locate(["p1", "P1.PNG", "sub/P9", "P9", "p77"])[:2] == [first, None]
    assert images.locate(["P3.PNG", "nowhere/p2.png"]) == [images.at("p3.png"), images.at("p2.png")]


def test_only_regular_members_are_images(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    secret = tmp_path / "secret.png"
    secret.write_bytes(photo(1))
    with tarfile.open(path, "w") as archive:
        for name, kind in (
            ("link.png", tarfile.SYMTYPE),
            ("hard.png", tarfile.LNKTYPE),
            ("pipe.png", tarfile.FIFOTYPE),
            ("folder.png", tarfile.DIRTYPE),
            ("device.png", tarfile.CHRTYPE),
        ):
            about = tarfile.TarInfo(name)
            about.type, about.linkname = kind, str(secret)
            archive.addfile(about)
    assert open_images(path).names == []


def test_no_name_in_an_archive_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out.png").write_bytes(photo(1))
    names = ["../out.png", str(tmp_path / "out.png"), "a/../../out.png"]
    path = write_tar(tmp_path / "in" / "a.tar", [(name, photo(9)) for name in names])
    images = open_images(path)
    assert set(contents(images).values()) == {photo(9)}
    before = sorted(tmp_path.rglob("*"))
    assert [why_unreadable(images.at(name)) for name in images.names] == [None] * 3
    assert sorted(tmp_path.rglob("*")) == before


def test_images_of_parquet_files_are_read_by_row_group_and_row(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", PHOTOS)
    images = open_images(path)
    assert contents(images) == dict(PHOTOS)
    backwards = [read_content(images.at(name)) for name in reversed(images.names)]
    assert backwards == [content for _, content in reversed(PHOTOS)]
    assert str(images.at("p4.png")) == f"{path}/p4.png"
    assert pq.ParquetFile(path).num_row_groups == 3


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_binary_columns_take_their_names_from_another_column(
    kind: pa.DataType, tmp_path: Path
) -> None:
    bytes_only = pa.array([content for _, content in PHOTOS], kind)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [f"n{i}" for i in range(8)], "jpg": bytes_only}), path)
    assert contents(open_images(path)) == {f"n{i}": PHOTOS[i][1] for i in range(8)}
    pq.write_table(pa.table({"jpg": bytes_only}), path)
    assert contents(open_images(path)) == {str(i): PHOTOS[i][1] for i in range(8)}


def test_rows_without_names_are_numbered_in_each_shard(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t-0.parquet", [(None, content) for _, content in PHOTOS[:5]])
    write_parquet(tmp_path / "t-1.parquet", [("x", content) for _, content in PHOTOS[5:]])
    images = open_images(tmp_path / "t-{0..1}.parquet")
    assert list(images.names) == [f"t-0.parquet/{i}" for i in range(5)] + [
        f"t-1.parquet/{i}" for i in range(3)
    ]
    assert list(contents(images).values()) == [content for _, content in PHOTOS]


def test_images_of_a_list_lie_anywhere(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.png").write_bytes(photo(len(folder)))
    there = tmp_path / "there" / "a.png"
    listed = tmp_path / "here" / "list.txt"
    listed.write_text(f"a.png\n\n../there/a.png\n{there}\na.png\n")
    assert contents(open_images(listed)) == {
        "a.png": photo(4), "../there/a.png": photo(5), str(there): photo(5)
    }  # fmt: skip
    assert open_images(listed).locate([str(tmp_path / "here" / "a.png")]) == [
        tmp_path / "here" / "a.png"
    ]
    table = tmp_path / "list.csv"
    table.write_text(f"split,Image,path\ntrain,one,here/a.png\ntest,two,{there}\n")
    assert contents(open_images(table)) == {"one": photo(4), "two": photo(5)}
    tabs = tmp_path / "list.tsv"
    tabs.write_text("image\tcat\nhere/a.png\t1\n")
    assert contents(open_images(tabs)) == {"here/a.png": photo(4)}


def test_lists_that_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(photo(1))
    (tmp_path / "b.png").symlink_to("a.png")
    for name, text, message in (
        ("l.txt", "a.png\nc.png\nd.png", r"l\.txt, line 2: there is no file 'c.png'; 2 paths"),
        ("l.csv", "cat,dog\n1,0\n", r"l\.csv: has no column of paths"),
        ("l.csv", "image,path\nx,a.png\nx,b.png\n", r"line 3: 'x' is another file in line 2"),
        ("l.csv", "image,path\nx\n", r"line 2: has too few columns"),
        ("l.csv", "image,path\n,a.png\n", r"line 2: has no path and name"),
        ("l.txt", "a\0.png", r"line 1: has no path"),
        ("l.txt", "x" * 5000, r"line 1: has no path"),
        ("l.csv", 'path\n"' + "x" * 200_000, r"l\.csv, line \d+: field larger"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(FileError, match=message):
            open_images(tmp_path / name)
    (tmp_path / "l.txt").write_bytes(b"\xff.png")
    with pytest.raises(FileError, match="not text in UTF-8"):
        open_images(tmp_path / "l.txt")
    (tmp_path / "l.txt").write_text("b.png")
    assert open_images(tmp_path / "l.txt").names == ["b.png"]
    monkeypatch.setenv("PARTLABEL_NO_SYMLINKS", "1")
    with pytest.raises(FileError, match=r"no file 'b\.png'"):
        open_images(tmp_path / "l.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(FileError, match="no regular file"):
        open_images(tmp_path / "pipe.txt")


def test_names_that_shards_share_start_with_the_shard(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"d{number}").mkdir()
        write_tar(tmp_path / f"s-{number:02}.tar", [(f"{i}.png", photo(i)) for i in range(2)])
        write_tar(tmp_path / f"d{number}" / "s.tar", [("0.png", photo(number))])
    write_tar(tmp_path / "s-02.tar", [("alone.png", photo(9))])
    images = open_images(tmp_path / "s-{00..02}.tar")
    assert images.names == [
        "s-00.tar/0.png", "s-00.tar/1.png", "s-01.tar/0.png", "s-01.tar/1.png", "s-02.tar/alone.png"
    ]  # fmt: skip
    member = images.at("s-01.tar/1.png")
    assert (str(member), read_content(member)) == (f"{tmp_path}/s-01.tar/1.png", photo(1))
    assert images.locate(["0.png", "alone"]) == [None, images.at("s-02.tar/alone.png")]
    in_folders = open_images(tmp_path / "d*" / "s.tar")
    assert in_folders.names == ["d0/s.tar/0.png", "d1/s.tar/0.png", "d2/s.tar/0.png"]
    with pytest.raises(FileError, match="is named twice"):
        open_images(tmp_path / "d{0,0}" / "s.tar").names  # noqa: B018


def test_two_images_of_one_name_in_an_archive_are_an_error(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("x.png", photo(1)), ("./x.png", photo(2))])
    with pytest.raises(FileError, match=r"a\.tar: two images are called 'x\.png'"):
        open_images(path)


def test_names_of_shards(tmp_path: Path) -> None:
    for number in range(8, 12):
        write_tar(tmp_path / f"s{number:03}.tar", [(f"{number}.png", photo(number))])
    write_tar(tmp_path / "{0..1}.tar", [("x.png", photo(1))])
    assert open_images(tmp_path / "s{008..011}.tar").names == ["10.png", "11.png", "8.png", "9.png"]
    assert open_images(tmp_path / "s{011..010}.tar").names == ["10.png", "11.png"]
    assert open_images(tmp_path / "s{008,010}.tar").names == ["10.png", "8.png"]
    assert open_images(tmp_path / "s*.tar").names == ["10.png", "11.png", "8.png", "9.png"]
    assert open_images(tmp_path / "{0..1}.tar").names == ["x.png"]  # a file with this name
    for pattern in ("s{008..012}.tar", "t*.tar", "t.tar"):
        assert not are_here(tmp_path / pattern)
        with pytest.raises(FileError, match="no such file of images"):
            open_images(tmp_path / pattern)
    assert are_here(tmp_path / "s{008..011}.tar")
    assert are_here(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        shard_files(tmp_path / "s{0..999999999}{0..999999999}.tar")


@pytest.mark.parametrize(
    ("mode", "command"), [("w:gz", "gunzip"), ("w:bz2", "bunzip2"), ("w:xz", "unxz")]
)
def test_compressed_archives_say_how_to_unpack_them(
    mode: str, command: str, tmp_path: Path
) -> None:
    for name in ("a.tar", "a.tar.gz", "a.tgz"):
        with tarfile.open(tmp_path / name, mode) as archive:  # type: ignore[call-overload]
            archive.addfile(tarfile.TarInfo("x.png"))
    with pytest.raises(FileError, match=rf"a\.tar: is compressed, .*`{command}`"):
        open_images(tmp_path / "a.tar")
    for name in ("a.tar.gz", "a.tgz"):
        with pytest.raises(FileError, match="is compressed"):
            open_images(tmp_path / name)
        with pytest.raises(FileError, match="is compressed"):
            list_images([tmp_path / name])


def test_damaged_archives_are_named(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", PHOTOS)
    good = path.read_bytes()
    third = open_images(path).at("p3.png")
    assert isinstance(third, Member)
    header = int(third.position.split()[0]) - 512
    huge = tarfile.TarInfo("long")
    huge.type, huge.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    for content, message in (
        (good[: header + 600], "unexpected end of data"),  # within an image
        (good[: header + 100], "damaged at byte"),  # within a header
        (good[:header], "no end marker"),  # between two images
        (good[:header] + b"x" * 512 + good[header + 512 :], f"damaged at byte {header:,}"),
        (b"no archive" * 100, "no tar archive"),
        (b"", "no tar archive"),
        (huge.tobuf() + good, "no tar archive"),
    ):
        path.write_bytes(content)
        with pytest.raises(FileError, match=rf"a\.tar: .*{message}"):
            open_images(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FileError, match="no regular file"):
        open_images(path)


@pytest.mark.parametrize("form", ["tar", "parquet"])
def test_damage_anywhere_gives_images_or_an_error_that_names_the_file(
    form: str, tmp_path: Path
) -> None:
    write = write_tar if form == "tar" else write_parquet
    good = write(tmp_path / f"good.{form}", PHOTOS).read_bytes()
    path, draw = tmp_path / f"bad.{form}", np.random.default_rng(0)
    errors: list[str] = []
    for _ in range(300):
        content = bytearray(good)
        start, length = (int(draw.integers(limit)) for limit in (len(good), 8))
        content[start : start + length] = draw.bytes(int(draw.integers(8)))
        path.write_bytes(content)
        parquet_files._groups.forget()
        try:
            images = open_images(path)
        except FileError as error:
            errors.append(str(error))
            continue
        for name in images.names:
            why_unreadable(images.at(name))
    assert 30 < len(errors) < 300
    assert all(error.startswith(str(path)) for error in errors)


def test_an_archive_that_changes_gives_no_wrong_image(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", PHOTOS)
    last = open_images(path).at("p7.png")
    before = version_of(last)
    write_tar(path, PHOTOS[:2])
    os.truncate(path, 2000)
    assert version_of(last) != before
    with pytest.raises(BrokenPictureError, match=r"a\.tar/p7\.png: the archive ends within"):
        read_picture(last, 8)
    path.unlink()
    assert content_key(last) == content_key(last)  # of its name
    assert "No such file" in str(why_unreadable(last))


def test_images_are_bounded_in_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tar = open_images(write_tar(tmp_path / "a.tar", PHOTOS)).at("p1.png")
    cell = open_images(write_parquet(tmp_path / "a.parquet", PHOTOS)).at("p1.png")
    monkeypatch.setattr(stored, "LARGEST", 50)
    for image in (tar, cell):
        assert "more than the limit of 50 bytes" in str(why_unreadable(image))


def test_row_groups_are_bounded_in_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file can repeat one value very often."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": pa.array([bytes(100_000)] * 1000, pa.binary())}), path)
    assert path.stat().st_size < 200_000
    image = open_images(path).at("7")
    monkeypatch.setattr(parquet_files, "LARGEST", 10_000_000)
    parquet_files._groups.forget()
    assert "row_group_size=100" in str(why_unreadable(image))
    monkeypatch.setattr(parquet_files, "LARGEST", 1000)
    os.utime(path)
    with pytest.raises(FileError, match=r"a\.parquet: a row group has more than 1 kB, and"):
        open_images(path)


def test_parquet_files_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for table, message in (
        (pa.table({"label": [1]}), "no column has the bytes of images; its columns are 'label'"),
        (pa.table({"a": [b"x"], "b": [b"x"]}), "several columns may have images: 'a', 'b'"),
        (pa.table({"a": [b"x"], "id": ["n" * 5000]}), "a name in 'id' has more than 4,096"),
    ):
        pq.write_table(table, path)
        with pytest.raises(FileError, match=message):
            open_images(path)
    good = write_parquet(path, PHOTOS).read_bytes()
    for content in (good[:-9], b"PAR1" + bytes(100) + b"PAR1", b"", good[:200] + good[-200:]):
        path.write_bytes(content)
        with pytest.raises(FileError, match=r"a\.parquet: cannot be read as Parquet"):
            open_images(path)
    write_parquet(path, [("a.png", photo(1)), ("b.png", None)])
    images = open_images(path)
    assert why_unreadable(images.at("a.png")) is None
    assert why_unreadable(images.at("b.png")) == "the file has no bytes of it"
    gone = open_images(write_parquet(path, PHOTOS)).at("p7.png")
    write_parquet(path, PHOTOS[:7])
    parquet_files._groups.forget()
    assert "fewer rows than before" in str(why_unreadable(gone))
    write_parquet(path, PHOTOS[:2])
    parquet_files._groups.forget()
    assert why_unreadable(gone) is not None


def test_a_path_in_a_parquet_file_is_only_a_name(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(photo(3))
    path = write_parquet(tmp_path / "a.parquet", [(str(secret), None), ("b", photo(4))])
    assert why_unreadable(open_images(path).at(str(secret))) == "the file has no bytes of it"


def test_few_row_groups_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = open_images(write_parquet(tmp_path / "a.parquet", PHOTOS))
    monkeypatch.setattr(parquet_files, "_KEPT", 1)
    reads: list[int] = []
    read = parquet_files._read_group

    def noted(cell: parquet_files.ParquetCell) -> object:
        reads.append(cell.group)
        return read(cell)

    monkeypatch.setattr(parquet_files, "_read_group", noted)
    parquet_files._groups.forget()
    assert list(contents(images).values()) == [content for _, content in PHOTOS]
    assert reads == [0, 1, 2]
    read_content(images.at("p0.png"))
    assert reads == [0, 1, 2, 0]
    assert len(parquet_files._groups._kept) == 1


def test_broken_members_are_named_once(tmp_path: Path) -> None:
    rows = [("a.png", photo(1)), ("b.png", b"no image"), ("c.png", photo(2)[:45])]
    for path in (write_tar(tmp_path / "a.tar", rows), write_parquet(tmp_path / "a.parquet", rows)):
        images = open_images(path)
        pictures = Pictures(images.names, [images.at(n) for n in images.names], 8, 0)
        (batch,) = pictures.batches([np.arange(3)], ("clean",), workers=0)
        assert batch.rows.tolist() == [0]
        assert batch.broken[1] == f"{path}/b.png: cannot identify image file"
        assert batch.broken[2].startswith(f"{path}/c.png: ")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", ["tar", "parquet", "list"])
def test_batches_are_those_of_the_folder(form: str, workers: int, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name, content in PHOTOS:
        (folder / name).write_bytes(content)
    if form == "tar":
        write_tar(tmp_path / "s0.tar", PHOTOS[:3])
        write_tar(tmp_path / "s1.tar", PHOTOS[3:])
        where = tmp_path / "s{0..1}.tar"
    elif form == "parquet":
        where = write_parquet(tmp_path / "s.parquet", list(reversed(PHOTOS)))
    else:
        where = tmp_path / "list.txt"
        where.write_text("".join(f"images/{name}\n" for name, _ in PHOTOS))
    names = [name for name, _ in PHOTOS]
    rows = in_batches(np.array([5, 0, 7, 3, 1, 2, 6, 4]), 3)
    batches = []
    for images in (open_images(folder), open_images(where)):
        files = [file for file in images.locate(names) if file is not None]
        pictures = Pictures(names, files, 8, seed=3)
        batches.append(list(pictures.batches(rows, ("weak", "strong"), 2, workers)))
    for ours, others in zip(*batches, strict=True):
        assert ours.rows.tolist() == others.rows.tolist()
        for view in ("weak", "strong"):
            assert ours.views[view].equal(others.views[view])
    for name, content in PHOTOS:
        (image,) = open_images(where).locate([name])
        assert image is not None
        assert content_key(image) == content_key(folder / name)
        assert read_content(image) == content


def test_members_are_values(tmp_path: Path) -> None:
    """They are equal if they are the same bytes, and can be sent to another process."""
    tar, parquet = (
        write_tar(tmp_path / "a.tar", PHOTOS),
        write_parquet(tmp_path / "p.parquet", PHOTOS),
    )
    (tmp_path / "link.tar").symlink_to(tar)
    (tmp_path / "link.parquet").symlink_to(parquet)
    for name in ("a.tar", "p.parquet"):
        image = open_images(tmp_path / name).at("p5.png")
        assert pickle.loads(pickle.dumps(image)) == image
        assert len({image, open_images(tmp_path / name).at("p5.png")}) == 1
        link = open_images(tmp_path / f"link{Path(name).suffix}").at("p5.png")
        assert link != image
        assert resolved(link) == resolved(image)


def test_equal_images_are_found_in_shards(tmp_path: Path) -> None:
    rows = [("a.png", photo(1)), ("b.png", photo(2)), ("c.png", photo(1)), ("d.png", photo(3))]
    for path in (write_tar(tmp_path / "a.tar", rows), write_parquet(tmp_path / "a.parquet", rows)):
        images = open_images(path)
        groups = equal_files([images.at(name) for name in images.names])
        assert groups.first.tolist() == [0, 1, 0, 3]


def test_images_of_many_kinds_are_listed_together(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", PHOTOS[:2])
    parquet = write_parquet(tmp_path / "a.parquet", PHOTOS[1:3])
    single = tmp_path / "single.png"
    single.write_bytes(photo(7))
    files, messages = list_images([tar, parquet, single])
    assert list(files) == ["p0.png", f"{tar}/p1.png", f"{parquet}/p1.png", "p2.png", "single.png"]
    assert messages == []
    with tarfile.open(tar, "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
        archive.addfile(tarfile.TarInfo("é.png"))
    assert list_images([tar]) == (
        {},
        [f"{tar}/a.tar/\\xe9.png: its name is not UTF-8; rename the file"],
    )
