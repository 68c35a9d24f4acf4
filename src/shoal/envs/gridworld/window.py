"""A window for pictures, by pygame."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.extras import need


class Window:
    """Opens with the first picture; `SDL_VIDEODRIVER=dummy` needs no display."""

    def __init__(self, title: str, fps: int) -> None:
        self._pygame = need("pygame", "multiagent")
        self._title, self._fps = title, fps
        self._clock: Any = self._pygame.time.Clock()
        self._screen: Any = None

    def show(self, picture: npt.NDArray[np.uint8]) -> None:
        """Show a picture, and wait until it is time for the next one."""
        pygame = self._pygame
        if self._screen is None:
            pygame.display.init()
            pygame.display.set_caption(self._title)
            self._screen = pygame.display.set_mode((picture.shape[1], picture.shape[0]))
        pygame.surfarray.blit_array(self._screen, picture.swapaxes(0, 1))
        pygame.event.pump()
        pygame.display.flip()
        self._clock.tick(self._fps)

    def close(self) -> None:
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
