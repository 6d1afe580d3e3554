"""``gpusched certificates``: what a cluster takes to encrypt its connections."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from gpusched.cli.errors import Failed, Unusable
from gpusched.cli.types import count

_TEXT = """\
Certificates for {names} are in {folder}, valid until {until:%Y-%m-%d %H:%M} UTC.
Copy the folder to each machine. Who can read key.pem can run code on the cluster.
They do not encrypt the dashboard: for that, see distributed.scheduler.dashboard.tls.

Scheduler:
  gpusched scheduler --protocol tls {flags}
Workers, with the scheduler's host:
  gpusched worker tls://HOST:8786 {flags}
Clients, in Python:
  from distributed import Client
  from gpusched.cluster import certificates
  client = Client("tls://HOST:8786", security={load})

Or, for all of them without flags, in a file such as ~/.config/dask/tls.yaml:

distributed:
  comm:
    default-scheme: tls
    require-encryption: true
    tls:
      ca-file: {ca}
      scheduler: {pair}
      worker: {pair}
      client: {pair}"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--hosts",
    metavar="NAME,...",
    multiple=True,
    help="Names and IP addresses of the cluster's machines; localhost and 127.0.0.1 are added. "
    "Dask does not check them; browsers and Prometheus do.",
)
@click.option(
    "--days", type=count(1), default=365, show_default=True, help="How long they are valid."
)
@click.option("--force", is_flag=True, help="Replace the certificates in FOLDER.")
def certificates(folder: Path, hosts: tuple[str, ...], days: int, force: bool) -> None:
    """Make certificates for a cluster, and print how to use them.

    They are written to FOLDER. All of the cluster's schedulers, workers and clients share them:
    copy FOLDER to each machine, or keep it in a shared file system. Who can read
    FOLDER/key.pem can run code on the cluster.
    """
    from gpusched.cluster import certificates

    names = [name for given in hosts for name in given.split(",")]
    try:
        certificates.create(folder, names, days, force=force)
        click.echo(instructions(folder, names))
    except ValueError as error:
        raise Unusable(str(error)) from None
    except (ImportError, OSError) as error:
        raise Failed(str(error)) from None


def instructions(folder: Path, hosts: list[str]) -> str:
    """Return how the certificates in a folder are used.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from gpusched.cli.certificates import instructions
    >>> from gpusched.cluster.certificates import create
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = create(folder)
    ...     text = instructions(Path(folder), [])
    >>> text.splitlines()[-1].strip().partition(" ")[0]
    'client:'
    """
    from gpusched.cluster import certificates

    place = folder.absolute()
    files = {
        "--tls-ca-file": str(place / certificates.CA),
        "--tls-cert": str(place / certificates.CERTIFICATE),
        "--tls-key": str(place / certificates.KEY),
    }
    # A JSON text is a YAML text, whatever is in it.
    ca, certificate, key = (json.dumps(file) for file in files.values())
    return _TEXT.format(
        folder=place,
        names=", ".join(certificates.host_names(hosts)),
        until=certificates.valid_until(place),
        flags=" ".join(f"{flag} {shlex.quote(file)}" for flag, file in files.items()),
        load=f"certificates.load({str(place)!r})",
        ca=ca,
        pair=f"{{cert: {certificate}, key: {key}}}",
    )
