"""`python -m iosonde` is `iosonde`."""

from iosonde.cli import main

if __name__ == "__main__":
    main()
