"""`atonce verify` as tests: a pytest item for every fault of a pipeline, and one for the verdict as a whole.

The first item runs the verification, once, with the faults whose items are to run; the others look up their result.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from atonce.pipeline import Pipeline
    from atonce.verify.results import Result, Verdict

CLEAN, VERDICT = "clean run", "verdict"
OPTION, FAULTS, RECORDS, SEED = "--atonce-verify", "--atonce-faults", "--atonce-count", "--atonce-seed"


class Verify(Protocol):
    """What the fixture `atonce_verify` gives."""

    def __call__(self, pipeline: Pipeline | str | Path, **options: Any) -> Verdict:
        """The verdict, if the guarantee was kept. Otherwise the test fails with the verdict's one line."""


class Broken(Exception):
    """A fault's result, or the verdict, in the certificate's words."""


def options(parser: pytest.Parser) -> None:
    group = parser.getgroup("atonce")
    group.addoption(
        OPTION,
        action="append",
        default=[],
        metavar="PIPELINE",
        help="verify this pipeline (YAML file or module:attribute), a test for every fault; may be given again",
    )
    group.addoption(FAULTS, default="default", metavar="FAULTS", help="default, all, or a list such as F3,F7")
    group.addoption(RECORDS, type=int, default=120, metavar="N", help="how many records each run has (120)")
    group.addoption(SEED, type=int, default=None, metavar="SEED", help="repeat a verification exactly")


def items(session: pytest.Session) -> list[pytest.Item]:
    """For every pipeline that the command line names."""
    return [item for target in session.config.getoption(OPTION) for item in Verification(session, target).items()]


class Verification:
    """One pipeline's, shared by its items."""

    def __init__(self, session: pytest.Session, target: str) -> None:
        self._session = session
        self.target = target
        self._verdict: Verdict | None = None
        self._error: Exception | None = None

    def items(self) -> list[pytest.Item]:
        from atonce.errors import AtOnceError
        from atonce.verify.select import chosen

        try:
            variants, _ = chosen(self._option(FAULTS), spark=True)
        except AtOnceError as error:
            raise pytest.UsageError(f"{FAULTS}: {error}") from None
        place = self._place()
        return [
            Item.from_parent(self._session, name=name, nodeid=f"{place}::{name}", verification=self)
            for name in (CLEAN, *(variant.title for variant in variants), VERDICT)
        ]

    def verdict(self) -> Verdict:
        """Runs with the first item; what went wrong is told by each."""
        if self._error is None and self._verdict is None:
            try:
                self._verdict = self._run()
            except Exception as error:
                self._error = error
        if self._verdict is None:
            raise self._error or AssertionError("neither a verdict nor an error")
        return self._verdict

    def result(self, name: str) -> Result | None:
        """None: the verification did without it."""
        results = self.verdict().results
        return results[0] if name == CLEAN else next((each for each in results if each.name == name), None)

    def _run(self) -> Verdict:
        return verified(
            self.target,
            faults=self._selected(),
            records=self._option(RECORDS),
            seed=self._option(SEED),
            replay=f"atonce verify {self._place()} --faults {{fault}} --seed {{seed}}",
        )

    def _selected(self) -> str:
        """What `-k` and the like left of the faults; none of them: what the command line says."""
        mine = [each for each in self._session.items if isinstance(each, Item) and each.verification is self]
        left = [item.name for item in mine if item.name not in (CLEAN, VERDICT)]
        everything = [item.name for item in self.items() if item.name not in (CLEAN, VERDICT)]
        return self._option(FAULTS) if left in ([], everything) else ",".join(left)

    def _place(self) -> str:
        path = Path(self.target)
        root = self._session.config.rootpath
        return (
            str(path.resolve().relative_to(root))
            if path.exists() and path.resolve().is_relative_to(root)
            else str(path)
        )

    def _option(self, name: str) -> Any:
        return self._session.config.getoption(name)


class Item(pytest.Item):
    """One fault, the clean run, or the verdict."""

    def __init__(self, *, verification: Verification, **words: Any) -> None:
        super().__init__(**words)
        self.verification = verification
        # With pytest-xdist's `--dist loadgroup` one worker runs all of a pipeline's, and verifies it once.
        self.add_marker(pytest.mark.xdist_group(verification.target))
        # The first one takes as long as all of them, so a limit for ordinary tests (pytest-timeout) is none for it.
        self.add_marker(pytest.mark.timeout(0))

    def runtest(self) -> None:
        if self.name == VERDICT:
            require_kept(self.verification.verdict())
            return
        from atonce.verify.results import State

        result = self.verification.result(self.name)
        if result is None:
            pytest.skip("not part of this verification")
        if result.state is State.BROKEN:
            raise Broken(in_one_line(self.verification.verdict(), result))
        if result.state in (State.NOT_APPLICABLE, State.NOT_EXERCISED):
            pytest.skip(f"{result.state.value}: {result.why}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from atonce.errors import AtOnceError

        if isinstance(excinfo.value, Broken | AtOnceError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return Path(self.verification.target), None, f"{self.verification.target}: {self.name}"


def fixture() -> Verify:
    def verify(pipeline: Pipeline | str | Path, **words: Any) -> Verdict:
        __tracebackhide__ = True
        verdict = verified(pipeline, **words)
        try:
            require_kept(verdict)
        except Broken as broken:
            pytest.fail(str(broken), pytrace=False)
        return verdict

    return verify


def verified(pipeline: Pipeline | str | Path, **words: Any) -> Verdict:
    """Keywords are those of `pipeline.verify`."""
    from atonce.verify import session

    return session.verify_pipeline(loaded(pipeline), **words)


def loaded(target: Pipeline | str | Path) -> Pipeline:
    from atonce.config import load, load_attribute
    from atonce.pipeline import Pipeline

    if isinstance(target, Pipeline):
        return target
    name = str(target)
    return load(name)[0] if name.endswith((".yaml", ".yml")) or ":" not in name else load_attribute(name)


def require_kept(verdict: Verdict) -> None:
    """`Broken` unless `atonce verify` would end with 0."""
    from atonce.verify.report.terminal import summary

    if verdict.exit_code() == 0:
        return
    lines = [summary(verdict), *(in_one_line(verdict, result) for result in verdict.broken)]
    lines += [f"{result.name}: {result.state.value}: {result.why}" for result in verdict.never_fired]
    raise Broken("\n".join(lines))


def in_one_line(verdict: Verdict, result: Result) -> str:
    from atonce.verify.report.terminal import replay

    again = f" Replay: {replay(verdict, result)}" if verdict.replay and result.name != "clean/run" else ""
    return f"{result.name}: {result.state.value}: {result.why}.{again}"
