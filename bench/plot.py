"""Pictures, drawn by gnuplot: size against bus bandwidth and against latency, a line for each library."""
import shutil
import subprocess

from figures import bus_factor, size_name
from peers import PEERS
from report import title

# Colours that also differ for those who see few of them, and in grey; a mark each.
STYLES = {
    "ddl": ("#d55e00", 7, 3), "openmpi": ("#0072b2", 4, 1.5), "openmpi-yield": ("#56b4e9", 8, 1.5),
    "openmpi-tuned": ("#332288", 12, 1.5), "mpich": ("#009e73", 10, 1.5), "gloo": ("#cc79a7", 6, 1.5),
}
TICKS = [4 ** power for power in range(1, 16, 2)]
SCRIPT = """\
set terminal {terminal} size 1000,440 background rgb "white" enhanced {font}
set output "{path}"
set multiplot layout 1,2 title "{title}" font ",15"
set logscale x 2
set logscale y 10
set xrange [{first}:{last}]
set xtics ({ticks}) rotate by -35
set grid xtics ytics linewidth 1 linecolor rgb "#dddddd"
set border 3 linecolor rgb "#666666"
set tics nomirror textcolor rgb "#333333"
set key bottom right reverse Left samplen 2 spacing 1.15
set title "bus bandwidth, GB/s" font ",12"
plot {bandwidth}
set key off
set title "time, us" font ",12"
plot {time}
unset multiplot
"""


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

    ticks = ", ".join(f'"{size_name(size)}" {size}' for size in TICKS if sizes[0] <= size <= sizes[-1])
    terminal = "svg" if path.endswith(".svg") else "pngcairo"
    script = "".join(blocks) + SCRIPT.format(
        terminal=terminal, font='font "sans,12"', path=path, title=title(case), first=sizes[0] / 1.5, last=sizes[-1] * 1.5,
        ticks=ticks, bandwidth=", ".join(bandwidth), time=", ".join(time))
    subprocess.run(["gnuplot", "-"], input=script, text=True, check=True)
    return True
