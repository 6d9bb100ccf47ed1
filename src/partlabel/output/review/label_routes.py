"""Requests about labels: the status, boards, verdicts, classes."""

from fastapi import FastAPI

from partlabel.labels.formats import FORMATS
from partlabel.output.review import messages
from partlabel.output.review.orders import ORDERS, OrderName
from partlabel.output.review.review_progress import class_progress, speeds
from partlabel.output.review.route_parameters import PROBLEMS, Filter, Limit, Start
from partlabel.output.review.session import Session
from partlabel.output.review.verdicts import Value


def add_state(app: FastAPI, session: Session, reviewer: str) -> None:
    """Add the requests for the state of the review: status, changes, progress."""

    @app.get("/api/status", responses=PROBLEMS)
    def status() -> messages.Status:
        """Where the review stands; answers while it loads."""
        about = session.journal.about()
        result = messages.Status(
            ready=session.ready,
            step=session.step,
            error=session.error,
            run=str(session.options.run),
            journal=about.get("seed", "") or about.get("began", ""),
            reviewer=reviewer,
            precision=session.options.precision,
            formats=[name for name, one in FORMATS.items() if one.writable],
            orders=list(ORDERS),
        )
        if session.ready:
            desk, background = session.desk, session.background
            result.images, result.classes = len(desk.images), len(desk.classes)
            result.number, result.notes = desk.standings.number, desk.opinions.notes
            result.fits = 0 if background is None else background.fits
            result.learning = "" if background is None else background.now
            result.not_learning = session.why_not_learning()
            if desk.opinions.features is None:  # the same as the doubtful ones
                result.orders.remove(OrderName.USEFUL)
        return result

    @app.get("/api/changes", responses=PROBLEMS)
    def changes(after: Start = 0) -> messages.Changes:
        """The labels that acts after a number have changed, of all reviewers."""
        desk, background = session.desk, session.background
        number = desk.standings.number
        return messages.Changes(
            number=number,
            fits=0 if background is None else background.fits,
            learning="" if background is None else background.now,
            not_learning=session.why_not_learning(),
            cells=desk.changes(after) if after < number else [],
        )

    @app.get("/api/progress", responses=PROBLEMS)
    def progress(text: Filter = "", start: Start = 0, limit: Limit = 50) -> messages.ProgressAnswer:
        """How the review goes: classes with verdicts and new classes first."""
        desk = session.desk
        with desk.lock:
            names = [name for name in desk.classes if text.lower() in name.lower()]
            new = set(desk.new_classes)
            names.sort(key=lambda name: (name not in new, -desk.standings.count(name)))
            conflicts = sum(one.conflict for _, _, one in desk.standings.all())
            total = sum(map(desk.standings.count, desk.classes))
        return messages.ProgressAnswer(
            total=len(names),
            precision=desk.opinions.precision,
            classes=[class_progress(desk, name) for name in names[start : start + limit]],
            speeds=speeds(desk),
            conflicts=conflicts,
            verdicts=total,
        )


def add_boards(app: FastAPI, session: Session) -> None:
    """Add the requests for boards, verdicts and suspects."""

    @app.post("/api/board", responses=PROBLEMS)
    def board(request: messages.BoardRequest) -> messages.BoardAnswer:
        """The next labels of a class to look at."""
        desk, background = session.desk, session.background
        if request.rows is not None:
            cells = desk.cells(request.name, request.rows)
        else:
            cells = desk.board(
                request.name,
                request.order,
                request.size,
                request.seen,
                request.random,
                request.examples,
            )
        return messages.BoardAnswer(
            cells=cells,
            fits=0 if background is None else background.fits,
            until_learned=None if background is None else background.until_next(request.name),
        )

    @app.post("/api/acts", responses=PROBLEMS)
    def act(request: messages.ActRequest) -> messages.ActAnswer:
        """Keep verdicts; the answer comes when they are on disk."""
        verdicts = {(one.row, one.name): Value(one.value) for one in request.verdicts}
        triples = [(row, name, value) for (row, name), value in verdicts.items()]
        scored = {(one.row, one.name) for one in request.verdicts if one.scored}
        judged = session.desk.judge(request.id, request.reviewer, triples, scored)
        session.notice()
        return messages.ActAnswer(
            number=judged.number, repeated=judged.repeated, cells=judged.cells
        )

    @app.post("/api/undo", responses=PROBLEMS)
    def undo(request: messages.UndoRequest) -> messages.UndoAnswer:
        """Take back the last act of a reviewer."""
        done = session.desk.undo(request.id, request.reviewer)
        if done is None:
            number = session.desk.standings.number
            return messages.UndoAnswer(number=number, undone=False, cells=[])
        return messages.UndoAnswer(number=done.number, undone=True, cells=done.cells)

    @app.get("/api/suspects", responses=PROBLEMS)
    def suspects(start: Start = 0, limit: Limit = 60) -> messages.SuspectList:
        """Known labels that look wrong and have no verdict, and labels that reviewers differ on."""
        desk = session.desk
        with desk.lock:
            pairs = desk.open_suspects()
            cells = [desk.cell(name, row) for row, name in pairs[start : start + limit]]
            differing = [
                desk.cell(name, desk.row_of[image])
                for name, image, one in desk.standings.all()
                if one.conflict
            ]
        return messages.SuspectList(total=len(pairs), conflicts=differing[:limit], suspects=cells)


def add_classes(app: FastAPI, session: Session) -> None:
    """Add the requests about classes."""

    @app.get("/api/classes", responses=PROBLEMS)
    def classes(text: Filter = "", limit: Limit = 200) -> messages.ClassList:
        """The classes whose name has a text in it; new ones first."""
        desk = session.desk
        with desk.lock:
            ordered = [*desk.new_classes, *desk.table.classes]
            names = [name for name in ordered if text.lower() in name.lower()]
            lines = [
                messages.ClassLine(
                    name=name,
                    new=name in desk.new_classes,
                    unknown=desk.unknown_count(name),
                    verdicts=desk.standings.count(name),
                    suspects=desk.suspect_count(name),
                )
                for name in names[:limit]
            ]
        return messages.ClassList(total=len(names), classes=lines)

    @app.post("/api/classes", responses=PROBLEMS)
    def new_class(request: messages.ClassRequest) -> messages.ClassLine:
        """Add a class; one that exists stays as it is."""
        session.desk.add_class(request.name, request.reviewer)
        desk = session.desk
        return messages.ClassLine(
            name=request.name,
            new=request.name in desk.new_classes,
            unknown=desk.unknown_count(request.name),
            verdicts=desk.standings.count(request.name),
            suspects=0,
        )

    @app.post("/api/tests", responses=PROBLEMS)
    def test(request: messages.TestRequest) -> messages.Problem:
        """Fix the scores of a new class, and test them with random labels from now on."""
        session.desk.start_test(request.name)
        return messages.Problem(message="")
