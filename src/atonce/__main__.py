"""`python -m atonce` is the `atonce` command, for where scripts are not on the path."""

from atonce.cli.entry import main

main()
