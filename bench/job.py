"""One run of a driver: starts it, reads its lines of JSON as they come, and ends it if it hangs."""
import json
import os
import select
import signal
import subprocess
import tempfile
import time

GRACE_S = 10  # ranks end themselves at the limit; only what is left then is ended from here
HEARD_S = 0.5  # by which a rank may have begun, or said a line, before that is noticed here
FIELDS = {
    "wrong": {"wrong": str, "rank": int, "bytes": int},
    "library": {"library": str, "collective": str, "bytes": int, "operations": int, "median_us": float,
                "mean_us": float, "p99_us": float},
    "limit": {"limit": str, "processes": int, "bytes": int, "us": float},
}


class TimedOut(Exception):
    pass


class Failed(Exception):
    pass


class WrongResult(Exception):
    pass


def run(command, environment, limit_s):
    """Yields what the driver measured, line by line. Raises TimedOut if a line takes longer than limit_s."""
    with tempfile.TemporaryDirectory(prefix="bench-") as store, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env={**os.environ, **environment, "BENCH_STORE": store},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                   start_new_session=True)
        try:
            last = time.monotonic()
            for text in lines(process.stdout, limit_s + GRACE_S):
                if text.startswith("{"):  # launchers have their say there too, when a rank ends
                    yield parse(text)
                    last = time.monotonic()
            if process.wait(GRACE_S) != 0:
                raise Failed(f"it ended with {process.returncode}: {tail(errors)}")
        except subprocess.TimeoutExpired as error:
            raise TimedOut() from error
        except Failed as error:
            if time.monotonic() - last >= limit_s - HEARD_S:  # the alarm of a rank, of which a launcher may write a story
                raise TimedOut() from error
            raise
        finally:
            end(process)


def lines(stream, limit_s):
    """Whole lines; TimedOut when nothing comes for limit_s."""
    pending = b""
    while select.select([stream], [], [], limit_s)[0]:
        chunk = os.read(stream.fileno(), 65536)
        if not chunk:
            if pending.startswith(b"{"):
                raise Failed(f"its last line is cut off: {pending.decode(errors='replace')!r}")
            return
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    raise TimedOut()


def parse(text):
    """The line as a dictionary with the fields of its kind."""
    try:
        line = json.loads(text)
        fields = next(fields for kind, fields in FIELDS.items() if kind in line)
        line = {name: of_type(line[name]) for name, of_type in fields.items()}
    except (ValueError, TypeError, KeyError, StopIteration) as error:
        raise Failed(f"it wrote what is no line of a driver: {text!r}") from error
    if "wrong" in line:
        raise WrongResult(f"{line['bytes']} bytes: rank {line['rank']} has a wrong result: {line['wrong']}")
    return line


def tail(errors):
    errors.seek(0)
    return errors.read().decode(errors="replace").strip()[-2000:] or "it said nothing"


def end(process):
    """Politely first: a launcher takes its ranks along."""
    for number in signal.SIGTERM, signal.SIGKILL:
        try:
            if process.poll() is None:
                os.killpg(process.pid, number)
            process.wait(GRACE_S / 2)
            break
        except subprocess.TimeoutExpired:
            continue
    process.stdout.close()
