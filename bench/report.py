"""Tables, the CSV, and the block of a README that holds them."""
import csv
import datetime
import math
import os
import platform
import re

from figures import OURS, size_name
from peers import PEERS

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
TRANSPORTS = {"shm": "shared memory", "tcp": "TCP over the loopback"}
COLUMNS = ("transport", "collective", "ranks", "bytes", "library", "version", "operations", "median_us", "mean_us",
           "p99_us", "fastest_us", "slowest_us", "bus_GBps", "limit_us", "limit_share", "over_best_other", "word")


def number(value):
    """Three digits that count: 0.52, 24.1, 1 464."""
    if value is None:
        return ""
    if value < 99.95:
        return f"{value:.2f}" if value < 9.995 else f"{value:.1f}"
    return f"{value:,.0f}".replace(",", " ")


def percent(share):
    return "" if share is None else f"{100 * share:.0f} %"


def title(case):
    return f"{case.collective.replace('_in_place', ' in place')}, {TRANSPORTS[case.transport]}, {case.ranks} ranks"


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table(results, case, sizes, peers):
    """A row per size: microseconds of each library, then how ddl stands."""
    ours = [peer for peer in peers if peer in OURS]
    lines = [row(["size", *(f"{PEERS[peer].label}, us" for peer in peers), "ddl / best other", "ddl, bus GB/s",
                  *(f"{PEERS[peer].label}, of the limit" for peer in ours)])]
    lines.append("|---|" + "---:|" * (len(peers) + 2 + len(ours)))
    for size in sizes:
        cells = []
        for peer in peers:
            point = results.point(case, peer, size)
            cells.append(number(point.mean_us) if point else results.word(case, peer, size) or "")
        lines.append(row([size_name(size) if size else "", *cells, number(results.ratio(case, size, peers)),
                          number(results.bus_gbps(case, "ddl", size)) if size else "",
                          *(percent(results.limit_share(case, peer, size)) for peer in ours)]))
    return "\n".join(lines) + "\n"


def summary(results, case, sizes, peers):
    """The ratios of the table in one sentence; empty if there are none."""
    ratios = [ratio for size in sizes if (ratio := results.ratio(case, size, peers)) is not None]
    if not ratios:
        return ""
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return (f"ddl takes {number(mean)} times as long as the fastest other library, in the geometric mean over the "
            f"sizes; {number(min(ratios))} at best, {number(max(ratios))} at worst.\n")


def limits_text(results, case):
    """What the machine could do in this run."""
    facts = results.limits(case)

    def rate(name, processes, size):
        return f"{number(size / facts[name, processes, size] / 1000)} GB/s"

    sizes = sorted({size for _, _, size in facts if size > 1})
    if case.transport == "shm":
        text = f"Limits in the same run: a flag in shared memory takes {1000 * facts['flag', 2, 0]:.0f} ns from one process to another"
        if sizes:
            cached = min(sizes, key=lambda size: abs(size - 2 ** 18))
            ends = [cached] + ([sizes[-1]] if sizes[-1] != cached else [])
            text += "; memcpy " + ", ".join(f"of {size_name(size)} {rate('memcpy', 1, size)} alone and {rate('memcpy', case.ranks, size)} "
                                            f"in each of {case.ranks} processes" for size in ends)
        return text + ".\n"
    return (f"Limits in the same run: half a round trip of a byte takes {number(facts['message', 2, 1])} us; {size_name(sizes[-1])} go at "
            f"{rate('stream', 2, sizes[-1])} from one process to another and at {rate('exchange', case.ranks, sizes[-1])} to and from each of "
            f"{case.ranks} at once.\n")


def placement(cases):
    in_place = [case.collective.endswith("_in_place") for case in cases]
    return "in place" if all(in_place) else "out of place where nothing else is said" if any(in_place) else "out of place"


def conditions(results, cases, arguments):
    """Where and how, in a sentence each: figures mean little without."""
    now = datetime.datetime.now(datetime.timezone.utc)
    versions = dict.fromkeys(results.versions[name] for name in PEERS if name in results.versions)
    return (f"{processor()}, {os.cpu_count()} cores, Linux {platform.release().split('-')[0]}, TCP congestion control "
            f"{congestion_control()}; {', '.join(versions)}; {now:%Y-%m-%d}. float32, {placement(cases)}, back to back, "
            f"{arguments.rounds} rounds of {arguments.seconds:g} s per size in which the libraries take turns; the mean of the "
            f"slowest rank, median over the rounds. Ratios are medians of the ratios within one turn (seconds apart), so "
            f"they may differ from the ratios of the columns. Measured by `{arguments.command}`.\n")


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return re.search(r"^model name\s*:\s*(.*)$", file.read(), re.M)[1]
    except (OSError, TypeError):
        return platform.machine()


def congestion_control():
    try:
        with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def document(results, cases, arguments, plots):
    """All of it in markdown. cases: {case: (sizes, peers)}; plots: {case: the picture's address}."""
    parts = [conditions(results, cases, arguments)]
    for case, (sizes, peers) in cases.items():
        parts.append(f"**{title(case)}.** {summary(results, case, sizes, peers)}")
        if case in plots:
            parts.append(f"![{title(case)}: bandwidth and latency against size]({plots[case]})\n")
        parts.append(table(results, case, sizes, peers))
        if results.limits(case):
            parts.append(limits_text(results, case))
    return "\n".join(parts)


def write_csv(file, results, cases):
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for case, (sizes, peers) in cases.items():
        for size in sizes:
            for peer in peers:
                point = results.point(case, peer, size)
                figures = [f"{figure:.6g}" for figure in point] if point else [""] * 6
                derived = [results.bus_gbps(case, peer, size), results.bound_us(case, size),
                           results.limit_share(case, peer, size),
                           results.ratio(case, size, peers) if peer == "ddl" else None]
                writer.writerow([*case, size, peer, results.versions.get(peer, ""), *figures,
                                 *("" if value is None else f"{value:.6g}" for value in derived),
                                 results.word(case, peer, size) or ""])


def replace_block(text, block):
    """The text with what stands between its marks replaced."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"there must be one line {BEGIN} and after it one line {END}")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{block.strip()}\n{END}{rest.split(END)[1]}"
