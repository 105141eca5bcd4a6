"""`dpadmm compose`: what several runs on the same people's records cost together."""

from pathlib import Path

import click

from dpadmm_mpi.cli.options import debug_option, result_files, say

LAWS = {0.0: "logarithmic", 0.5: "negative binomial (1/2)", 1.0: "geometric"}


@click.command()
@result_files
@click.option(
    "--delta", type=click.FloatRange(min=0.0, max=1.0, min_open=True, max_open=True), default=1e-5, help="Default: 1e-5."
)
@click.option("--selection", is_flag=True, help="What it costs to publish the best of them only, chosen by the records.")
@debug_option
def compose(files: tuple[Path, ...], delta: float, selection: bool) -> int:
    """What the runs in FILE... cost together, if the same people's records are in all of them.

    Each is given by its own curve of delta over epsilon, of its worst node; a file with several runs counts as one of them.

    \b
    dpadmm compose a.h5 b.h5 --delta 1e-6
    dpadmm compose sweep/ --selection
    """
    from dpadmm_mpi.reports.columns import number
    from dpadmm_mpi.reports.meaning import in_words, price_of_choice, together
    from dpadmm_mpi.reports.tables import aligned
    from dpadmm_mpi.storage.probe import probe
    from dpadmm_mpi.storage.result import curve_needed, labels, load_all

    probe(files)
    results = load_all(files)
    rows = []
    for result, label in zip(results, labels(results), strict=True):
        curve = curve_needed(result)
        rows.append([label, number(curve.epsilon_at(delta)), number(curve.advantage), number(curve.gaussian_mu)])
    total = together(results)
    rows.append(["together", number(total.epsilon_at(delta)), number(total.advantage), number(total.gaussian_mu)])
    say(aligned(["name", f"epsilon at {delta:g}", "advantage", "Gaussian mu"], rows))
    if selection:
        chosen, shape, everything = price_of_choice(results, delta)
        say(
            f"the best of them, chosen by the records: epsilon {chosen:.4g}, if the number of tries is drawn from the "
            f"{LAWS[shape]} distribution with mean {len(results)} and each try draws one of these settings (Papernot and "
            f"Steinke 2022, Theorem 2); whoever tries them all pays {everything:.4g}, as if all were published"
        )
        return 0
    for sentence in in_words(total):
        say(f"together: {sentence}")
    return 0
