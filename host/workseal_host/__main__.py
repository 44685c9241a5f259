"""`python -m workseal_host`: the command line with the host's verbs."""

from workseal_host.cli.app import app

app(prog_name="workseal")
