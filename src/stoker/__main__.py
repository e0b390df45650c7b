"""``python -m stoker`` is the command ``stoker``."""

from stoker.cli import main

if __name__ == "__main__":
    main()
