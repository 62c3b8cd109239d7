"""A fake CLI that plays a recorded run: `player.py FOLDER …what the adapter adds…`.

It reads its input to the end, then prints the lines of FOLDER/stdout, each at the time that
FOLDER/times gives for it in seconds from the start. It stands alone and imports the standard library
only, so that it starts quickly and needs nothing of the package.
"""

import sys
import time


def play(folder: str) -> None:
    """Print the recording in its own time."""
    began = time.monotonic()
    sys.stdin.buffer.read()
    with open(f"{folder}/stdout", "rb") as lines, open(f"{folder}/times") as times:
        for line, at in zip(lines, times, strict=True):
            time.sleep(max(0.0, began + float(at) - time.monotonic()))
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    play(sys.argv[1])
