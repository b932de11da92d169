"""`atonce broker`: the embedded broker in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atonce.errors import EXIT_FAILED


def register(app: typer.Typer) -> None:
    app.command("broker")(broker)


def broker(
    data: Annotated[Path, typer.Option("--data", help="Directory that holds the logs; made if it is not there.")],
    listen: Annotated[
        str | None,
        typer.Option("--listen", help="HOST:PORT; port 0 picks a free one.", show_default="127.0.0.1:9092"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A broker or topic setting, by Kafka's name. May be repeated."),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics there.")
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="TLS and logins: makes a certificate and the user `admin` in --data, and prints the client settings. "
            "Listens on 0.0.0.0:9093 unless --listen says otherwise.",
        ),
    ] = False,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Allow an address that other machines can reach without TLS and a login."),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Start nothing: show what in --data cannot be read, and what would be taken out."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --repair: do it. The files as they were are kept.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens, on standard error.")] = False,
) -> None:
    """Run a broker that speaks Kafka's protocol, in one process, with its data in a directory.

    Prints `ready on HOST:PORT` once it answers. SIGTERM and Ctrl-C stop it cleanly; the data stays.

    Examples:

      atonce broker --data .atonce/broker

      atonce broker --data /var/lib/atonce --listen 127.0.0.1:0 --metrics 127.0.0.1:9405

      atonce broker --data .atonce/broker --set log.retention.hours=24

      atonce broker --data /var/lib/atonce --secure

      atonce broker --data /var/lib/atonce --repair
    """
    import logging

    from atonce.broker.run import Options, run
    from atonce.broker.settings import checked_broker_settings, parse_assignments
    from atonce.local.secrets import from_command_line

    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if repair:
        _repair(data, do_it=yes)
        return
    given = {
        name: from_command_line(f"--set {name}", value, secret="password" in name)
        for name, value in parse_assignments(settings or ()).items()
    }
    if not secure:
        options = Options(data, listen, checked_broker_settings(given), insecure, metrics)
        run(options, lambda address: print(f"ready on {address}", flush=True))
        return
    from atonce.broker.address import parse_address, show_address
    from atonce.broker.secure import reachable_name
    from atonce.broker.secure import secure as make_secure

    secured = make_secure(data, listen, given)
    options = Options(data, None, checked_broker_settings(secured.settings), insecure, metrics)

    def ready(address: str) -> None:
        print(f"ready on {address}")
        servers = show_address(reachable_name(listen), parse_address(address)[1])
        print("# Client settings; give clients a copy of ca.pem and the password, or users of their own.")
        print("\n".join(secured.write_client_settings(servers)))
        print(f"# For Kafka's Java tools: --command-config {secured.folder / 'client.properties'}", flush=True)

    run(options, ready)


def _repair(data: Path, *, do_it: bool) -> None:
    from atonce.broker.repair import repair_data

    found, kept = repair_data(data, do_it=do_it)
    print("\n".join(found.lines()))
    if kept is not None:
        print(f"Done. The files as they were are in {kept}; start the broker again.")
    elif found.is_needed:
        print("Nothing was changed. A copy of the directory may hold more; otherwise add --yes.")
        raise typer.Exit(EXIT_FAILED)
    else:
        print("Nothing has to be repaired.")
