"""Pictures, drawn by gnuplot: size against bus bandwidth and against latency, a line for each library."""
import shutil
import subprocess

from figures import bus_factor, size_name
from peers import PEERS
from report import title

# Colours that also differ for those who see few of them, and in grey; a mark each.
STYLES = {
    "ddl": ("#d55e00", 7, 3), "ddl-shared": ("#e69f00", 5, 1.5), "openmpi": ("#0072b2", 4, 1.5), "openmpi-yield": ("#56b4e9", 8, 1.5),
    "openmpi-tuned": ("#332288", 12, 1.5), "mpich": ("#009e73", 10, 1.5), "gloo": ("#cc79a7", 6, 1.5),
    "torch": ("#882255", 14, 1.5),
}
SIZE_TICKS = [4 ** power for power in range(1, 16, 2)]
TIME_TICKS = {10 ** power: f"{10 ** (power % 3)} {('us', 'ms', 's')[power // 3]}" for power in range(9)}
RATE_TICKS = {10 ** (power - 6): f"{10 ** (power % 3)} {('kB/s', 'MB/s', 'GB/s')[power // 3]}" for power in range(9)}
TIME_TICKS.update({0.1: "0.1 us", 0.01: "0.01 us"})
SCRIPT = """\
set terminal {terminal} size 1120,420 background rgb "white" font "sans,12"
set output "{path}"
set multiplot title "{title}" font ",15"
set logscale x 2
set logscale y 10
set xrange [{first}:{last}]
set xtics ({size_ticks}) rotate by -35
set grid xtics ytics linetype 1 linewidth 0.7 linecolor rgb "#d8d8d8"
set border 3 linecolor rgb "#666666"
set tics nomirror textcolor rgb "#333333"
set tmargin at screen 0.82
set bmargin at screen 0.18
set key off
set lmargin at screen 0.085
set rmargin at screen 0.395
set ytics ({rate_ticks})
set title "bus bandwidth" font ",12"
plot {bandwidth}
set key at screen 0.79,0.84 left top reverse Left invert samplen 2 spacing 1.3
set lmargin at screen 0.465
set rmargin at screen 0.775
set ytics ({time_ticks})
set title "time" font ",12"
plot {time}
unset multiplot
"""


def ticks(labels):
    return ", ".join(f'"{label}" {value}' for value, label in labels.items())


def is_possible():
    return shutil.which("gnuplot") is not None


def draw(path, results, case, sizes, peers):
    """Writes path, an .svg or a .png. A case without sizes, as a barrier is, has no picture: False."""
    measured = [peer for peer in peers if any(results.point(case, peer, size) for size in sizes)]
    if len(sizes) < 2 or not measured:
        return False
    blocks, bandwidth, time = [], [], []

    def add(name, times, style, label):
        rows = "\n".join(f"{size} {bus_factor(case.collective, case.ranks) * size / us / 1000:.6g} {us:.6g}"
                         for size, us in times)
        blocks.append(f"${name} << END\n{rows}\nEND\n")
        bandwidth.append(f'${name} using 1:2 {style} title "{label}"')
        time.append(f'${name} using 1:3 {style} title "{label}"')

    bounds = [(size, bound) for size in sizes if (bound := results.bound_us(case, size))]
    if bounds:
        add("limit", bounds, 'with lines dashtype 2 linewidth 1.5 linecolor rgb "#888888"', "limit of this machine")
    for peer in reversed(measured):  # ddl, the first, over the others
        colour, mark, width = STYLES[peer]
        points = [(size, point.mean_us) for size in sizes if (point := results.point(case, peer, size))]
        style = f'with linespoints linewidth {width} pointtype {mark} pointsize 0.7 linecolor rgb "{colour}"'
        add(peer.replace("-", "_"), points, style, PEERS[peer].label)

    sizes_named = {size: size_name(size) for size in SIZE_TICKS if sizes[0] <= size <= sizes[-1]}
    script = "".join(blocks) + SCRIPT.format(
        terminal="svg" if path.endswith(".svg") else "pngcairo", path=path, title=title(case), first=sizes[0] / 1.5,
        last=sizes[-1] * 1.5, size_ticks=ticks(sizes_named), rate_ticks=ticks(RATE_TICKS), time_ticks=ticks(TIME_TICKS),
        bandwidth=", ".join(bandwidth), time=", ".join(time))
    subprocess.run(["gnuplot", "-"], input=script, text=True, check=True)
    return True
