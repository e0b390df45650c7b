"""Which source serves a site just now."""

from __future__ import annotations

from typing import Any

from stoker.tuning.named import summary_of
from stoker.tuning.probing import Ask
from stoker.watch.asking import Asking
from stoker.watch.looking import SiteLook
from stoker.watch.measuring import Measuring
from stoker.watch.roles import Conducts, Epoch
from stoker.watch.sources import PATIENCE_S, Source


class Supply:
    """See the module.

    Args:
        conductor: Of this process.
        asking: Of the site; so are the others.
        measuring: Is told what is opened and dropped.
        look_into: Reads what workers have told before they are forgotten.

    Attributes:
        source: What serves; None where nothing does.
        made_from: The program's loader that it serves.
        holder: Number of the iterator whose epoch the program's own iterator is; else None.
        from_start: Whether the source has served its epoch from the first batch on.
    """

    def __init__(
        self, conductor: Conducts, asking: Asking, measuring: Measuring, look_into: SiteLook
    ) -> None:
        self.source: Source | None = None
        self.made_from: Any = None
        self.holder: int | None = None
        self.from_start = False
        self._conductor, self._asking = conductor, asking
        self._measuring, self._look_into = measuring, look_into
        self._fresh_for: Any = None

    def get(self, ask: Ask, iterator: Epoch) -> Source | None:
        """What serves; None where it could not be opened.

        Raises:
            Exception: What the user's code raised in the program's own setting.
        """
        source = self.source
        if self.changes(ask):
            self._conductor.guarded(self.drop)
            source = None
            if self._conductor.off:
                return None
        self._fresh_for = ask.stage, ask.round, ask.setting
        return source if source is not None else self.open(ask, iterator)

    def changes(self, ask: Ask) -> bool:
        """Whether the source that is there can't serve what is asked for."""
        source = self.source
        if source is None or source.setting != ask.setting:
            return source is not None
        return ask.fresh and self._fresh_for != (ask.stage, ask.round, ask.setting)

    def open(self, ask: Ask, iterator: Epoch) -> Source | None:
        """As `get`, where there is none."""
        conductor, loader = self._conductor, iterator._watched_loader
        plain, timeout_s = self._asking.is_plain(ask), conductor.settings.timeout_s
        self._fresh_for = ask.stage, ask.round, ask.setting
        try:
            source = Source(loader, ask.setting, plain, conductor.open_iterator, timeout_s)
        except Exception as error:
            if plain:
                raise
            conductor.guarded(self._asking.failed, ask.setting, summary_of(error))
            return None
        self.source, self.made_from = source, loader
        self.from_start = iterator.served == 0
        self.holder = iterator.number if plain and self.from_start else None
        conductor.guarded(self._measuring.opened, source, ask)
        return source

    def drop(self, patience_s: float = PATIENCE_S) -> None:
        """Its workers end; blocks until they have made what they are at, for so long."""
        source = self.source
        self.source = self.made_from = self.holder = None
        if source is None:
            return
        try:
            pids = source.pids
            self._measuring.weigh(source)
            source.close(patience_s)
            self._look_into.read(pids, last=not source.stays)
        finally:
            self._measuring.dropped(source)

    def let_go(self) -> None:
        """It serves somebody else."""
        source, self.source = self.source, None
        self.made_from = self.holder = None
        if source is not None:
            self._measuring.dropped(source)

    def own_of(self, iterator: Epoch) -> Any:
        """The program's own iterator that stands where this epoch does; None without one."""
        source = self.source
        mine = source is not None and source.own and self.holder == iterator.number
        return source.iterator if source is not None and mine else None

    def pass_on(self, iterator: Epoch) -> None:
        """A new epoch begins while a source is there."""
        source, measuring = self.source, self._measuring
        if source is None:
            return
        whole = measuring.whole(source, iterator)
        if source.own or self.made_from is not iterator._watched_loader:
            if not source.own and self.from_start and not whole:
                measuring.ends_with_epoch(source, source.served)
            self.drop()
        elif whole:
            self.restart(source)
        else:
            measuring.goes_on(source)

    def restart(self, source: Source) -> None:
        """A source begins its data set again."""
        try:
            source.restart()
        except Exception as error:
            if source.own:
                self._conductor.fails(error)
            else:
                self.failed(source, error)
            return
        self._measuring.restarted(source)

    def failed(self, source: Source, error: Exception) -> None:
        """A setting that was tried does not work."""
        self.drop(0.0)
        self._measuring.spoil()
        self._measuring.stretches.pause()
        self._asking.failed(source.setting, summary_of(error))
