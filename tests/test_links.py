"""Files of links between classes, and files of class vectors."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partlabel.base.errors import FileError, PartlabelWarning
from partlabel.labels.formats.links import read_links, write_links
from partlabel.labels.formats.vectors import read_vectors
from partlabel.learning.cooccurrence import LabelGraph, given_graph
from partlabel.output.report.learned_links import links_of

CLASSES = ["cat", "dog", "a, b"]


def test_links_are_read_as_written(tmp_path: Path) -> None:
    links = [("cat", "dog", 0.5), ("dog", "cat", 2.0), ("a, b", "cat", 0.0)]
    write_links(tmp_path / "links.csv", links)
    assert read_links(tmp_path / "links.csv", CLASSES) == links
    with pytest.warns(PartlabelWarning, match="are not classes are ignored: 'a, b'"):
        assert read_links(tmp_path / "links.csv", ["cat", "dog"]) == links[:2]


def test_a_learned_graph_survives_as_links() -> None:
    linked = np.array([[0, 1, 2], [1, 0, 1], [2, 2, 2]])
    weights = np.array([[0.5, 0.25, 0.25], [0.8, 0.2, 0], [1, 0, 0]], dtype=np.float32)
    graph = LabelGraph(linked, weights)
    negative = LabelGraph(linked, -weights)
    assert links_of(negative, CLASSES) == []
    restored = given_graph(CLASSES, links_of(graph, CLASSES))
    np.testing.assert_allclose(restored.weights, weights, atol=1e-6)
    np.testing.assert_array_equal(restored.linked, linked)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "class,linked\ncat,dog\n",
            r"line 1.*the header must start with class,linked,weight",
        ),
        ("class,linked,weight\ncat,dog,1\ncat,dog,2\n", r"line 3.*is already in line 2"),
        ("class,linked,weight\ncat,dog,-1\n", r"line 2.*must not be negative"),
        ("class,linked,weight\ncat,dog,much\n", r"line 2.*expected a number, found 'much'"),
        ("class,linked,weight\ncat,dog\n", r"line 2.*expected 3 columns, found 2"),
        ("class,linked,weight\ncat,dog,0,5\n", r"line 2.*expected 3 columns, found 4"),
        (
            "class,linked,weight\nCat,Dog,1\n",
            "no link between two classes.*not among the classes: 'Cat', 'Dog'",
        ),
        ("class,linked,weight\ncat,cat,1\n", "no link between two classes"),
        ("", "empty"),
    ],
)
def test_mistakes_are_errors_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "links.csv"
    path.write_text(text)
    with pytest.raises(FileError, match=message):
        read_links(path, CLASSES)


@given(st.one_of(st.binary(max_size=60), st.text('class,linkedweight1.\n"; ', max_size=60)))
def test_any_file_is_read_or_raises_a_file_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes | str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    body = content if isinstance(content, bytes) else content.encode()
    for header in (b"", b"class,linked,weight\n", b"class,x\n"):
        path.write_bytes(header + body)
        for read in (lambda: read_links(path, CLASSES), lambda: read_vectors(path, CLASSES[:1])):
            with suppress(FileError, PartlabelWarning):
                read()
