"""The entry point: a Ctrl-C while modules load ends the process by it, without a traceback."""

import signal
import sys


def main() -> int:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tokenmill.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
