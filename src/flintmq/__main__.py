"""`python -m flintmq`."""

from flintmq.cli.main import main

if __name__ == "__main__":
    main(prog_name="flintmq")
