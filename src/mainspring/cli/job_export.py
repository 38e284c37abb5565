"""`mainspring job export`: the jobs of a server as a file that `job apply` reads."""

from __future__ import annotations

from typing import Any, Final

import click
import msgspec
from msgspec import NODEFAULT, UNSET, Struct

from mainspring.cli.export_file import export_file
from mainspring.cli.globals import connection_options, settings
from mainspring.cli.job_file import Form, form_of
from mainspring.cli.output import say, yaml_text
from mainspring.cli.parameters import LABEL, once_each
from mainspring.cli.progress import progress
from mainspring.delivery.secrets import HIDDEN
from mainspring.jobs.calendar.calendar import Dst
from mainspring.jobs.difference import CONTENT
from mainspring.jobs.messages import CreateJob, JobView
from mainspring.model import RetryPolicy
from mainspring.text import counted

PAGE: Final = 200

Fields = dict[str, Any]


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, readable=False, allow_dash=True), default="-")
@click.option(
    "--format", "form", type=click.Choice(["yaml", "json"]), help="[default: by the file's name; YAML for stdout]"
)
@click.option("--name-prefix", default="", help="Names starting with this.")
@click.option("--label", "labels", type=LABEL, multiple=True, help="Has this label. Repeatable; all must match.")
@click.option("--secrets", is_flag=True, help="Include secrets, in a file that only you can read.")
@connection_options
@click.pass_context
def export_command(
    ctx: click.Context,
    file: str,
    *,
    form: Form | None,
    name_prefix: str,
    labels: tuple[tuple[str, str], ...],
    secrets: bool,
) -> None:
    """Write jobs to a file, or to stdout, as `job apply` reads them. Fields that have their default are left out.

    Labels that were asked for stand at the top of the file: applying it leaves jobs without them alone. Broken jobs
    are left out and counted. Secrets in headers and URLs are replaced by ***, which an update of the same job
    understands as "unchanged", and a new job refuses. With --secrets they are included, in a file that only its owner
    can read; stdout, pipes and devices are then refused. A file appears only once it is complete.

    \b
    Examples:
      mainspring job export jobs.yaml
      mainspring job export --label team=blue blue.json
      mainspring job export --url http://old:8700 | mainspring job apply - --dry-run
    """
    if secrets and file == "-":
        raise click.UsageError("Expected a FILE for --secrets, got stdout.")
    chosen = form or form_of(file) or "yaml"
    if chosen == "toml":
        raise click.UsageError(f"Expected a file of YAML or JSON, got {file}. To write one of them there: --format.")
    scope = once_each(labels, "label")
    jobs: dict[str, Fields] = {}
    broken = hidden = 0
    with settings(ctx).connect() as client, progress(None, "exporting", settings(ctx)) as advance:
        for job in client.jobs.iterate(page_size=PAGE, name_prefix=name_prefix, labels=scope, secrets=secrets):
            if job.state == "broken":
                broken += 1
                continue
            jobs[job.name] = fields_of(job, without=scope)
            hidden += HIDDEN in job.headers.values() or f"={HIDDEN}" in (job.url or job.route or "")
            advance(len(jobs))
    document = {**({"labels": scope} if scope else {}), "jobs": jobs}
    with export_file(file, private=secrets) as target:
        target.write(_text(document, chosen).encode())
    if hidden:
        say(f"{counted(hidden, 'job')} with secrets, which were left out; --secrets includes them")
    if broken:
        say(f"{counted(broken, 'broken job')} left out; see `mainspring job list --state broken`")
    if file != "-":
        say(f"{counted(len(jobs), 'job')} written to {file}")


def fields_of(job: JobView, *, without: dict[str, str]) -> Fields:
    """What a file says of a job, without the labels that stand at its top."""
    shown = msgspec.json.decode(msgspec.json.encode(job), type=Fields)
    fields = _without_defaults({wire: shown[wire] for wire in CONTENT.values()}, CreateJob)
    for name, kind in (("retryPolicy", RetryPolicy), ("dst", Dst)):
        if name in fields:
            fields[name] = _without_defaults(fields[name], kind)
    fields["labels"] = {name: value for name, value in job.labels.items() if name not in without}
    if not fields["labels"]:
        del fields["labels"]
    if job.state == "paused":
        fields |= {"paused": True, **({"note": job.note} if job.note else {})}
    return fields


def _without_defaults(fields: Fields, kind: type[Struct]) -> Fields:
    """What is left to say, if everything absent has its default."""
    defaults = {
        field.encode_name: msgspec.to_builtins(field.default if field.default is not NODEFAULT else {})
        for field in msgspec.structs.fields(kind)
        if field.default is not UNSET
    }
    return {name: value for name, value in fields.items() if value is not None and value != defaults.get(name)}


def _text(document: Fields, form: Form) -> str:
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    return yaml_text(document)
