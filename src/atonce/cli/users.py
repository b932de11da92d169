"""`atonce users`: who may log in to an embedded broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atonce.cli.parts.screen import JsonOption, confirm, print_json, print_table
from atonce.cli.parts.servers import BROKER_DATA
from atonce.errors import UsageError

if TYPE_CHECKING:
    from atonce.broker.users import Users

HELP = """Who may log in to an embedded broker.

They are kept in the broker's data directory, salted; a broker that runs on it sees a change at the next login.

Examples:

  atonce users add alice

  atonce users add etl --password-file /run/secrets/etl --data /var/lib/atonce

  atonce users list
"""

commands = typer.Typer(help=HELP, no_args_is_help=True)

DataOption = Annotated[Path, typer.Option("--data", help="The broker's data directory.")]
FileOption = Annotated[Path | None, typer.Option("--password-file", help="A file that holds the password.")]
VariableOption = Annotated[
    str | None, typer.Option("--password-variable", metavar="NAME", help="A variable of the environment that holds it.")
]


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="users")


@commands.command()
def add(
    name: str,
    data: DataOption = Path(BROKER_DATA),
    password_file: FileOption = None,
    password_variable: VariableOption = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="PREFIX",
            help="May use topics, groups and transactional ids that begin so; '*' for all. May be repeated.",
        ),
    ] = None,
) -> None:
    """A new user. The password is asked for, or comes from a file or the environment; never from the command line.

    Where the broker has an authorizer (`--secure`), a user may do what ACLs allow; --allow makes the usual ones.

    Example: atonce users add alice --allow orders
    """
    users = _users(data)
    if name in users.all():
        raise UsageError(f"{name} is a user already. Next: atonce users password {name}")
    _set(users, name, password_file, password_variable)
    if allow:
        from atonce.broker.acls import Acls, full_use

        entries = [entry for prefix in allow for entry in full_use(f"User:{name}", prefix)]
        Acls(data).change(lambda known: known.update(entries))
    print(f"{name} may log in to the broker on {data}")


@commands.command()
def password(
    name: str,
    data: DataOption = Path(BROKER_DATA),
    password_file: FileOption = None,
    password_variable: VariableOption = None,
) -> None:
    """Another password. Connections that are open stay open.

    Example: atonce users password alice
    """
    users = _known(data, name)
    _set(users, name, password_file, password_variable)
    print(f"{name} has another password")


@commands.command("list")
def list_(data: DataOption = Path(BROKER_DATA), json: JsonOption = False) -> None:
    """All users, and how they can log in.

    Example: atonce users list
    """
    found = [{"user": name, "mechanisms": [one.sasl_name for one in held]} for name, held in _users(data).all().items()]
    if json:
        print_json(found)
    else:
        print_table(("user", "mechanisms"), [(one["user"], one["mechanisms"]) for one in found], empty="no users")


@commands.command()
def remove(
    name: str,
    data: DataOption = Path(BROKER_DATA),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """A user who may not log in any more. Connections that are open stay open.

    Example: atonce users remove alice --yes
    """
    users = _known(data, name)
    confirm(f"Remove the user {name} from the broker on {data}?", yes=yes)
    users.remove(name)
    print(f"{name} may not log in any more")


def _users(data: Path) -> Users:
    from atonce.broker.address import LOCK
    from atonce.broker.users import Users
    from atonce.local.private import make_private_directory

    try:
        make_private_directory(data, LOCK)
    except OSError as error:
        raise UsageError(f"{data}: cannot be used as a data directory: {error.strerror}") from error
    return Users(data)


def _known(data: Path, name: str) -> Users:
    users = _users(data)
    if name not in users.all():
        raise UsageError(f"{name} is no user of the broker on {data}. Next: atonce users list")
    return users


def _set(users: Users, name: str, file: Path | None, variable: str | None) -> None:
    from atonce.local.secrets import ask_password

    if not name or "\0" in name:
        raise UsageError("a user's name has at least one character, and no null characters")
    users.set_password(name, ask_password(name, file=file, variable=variable))
