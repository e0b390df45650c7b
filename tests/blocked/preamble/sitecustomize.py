"""On ``PYTHONPATH``: this process and those that it starts are as on Windows to Stoker."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
try:
    import windows_like
finally:
    sys.path.pop()

windows_like.install()
