"""tensorboard_routes.py LOGDIR RANKS

Starts TensorBoard on a profile of `drover run_clm --profile` and asks its profile plugin for what the pages
of a browser would show. Ends with an error if a rank, a step, a layer or an operation is missing.
"""

import gzip
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

PLUGIN = "data/plugin/profile/"
STEPS = [3, 4, 5]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Board:
    """A TensorBoard that runs as long as the object is used in a `with`."""

    def __init__(self, logdir):
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", "--logdir", logdir, "--host", "127.0.0.1", "--port", str(self.port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        deadline = time.monotonic() + 120
        while True:
            try:
                self.get("data/environment")
                return self
            except (urllib.error.URLError, ConnectionError):
                if self.process.poll() is not None:
                    raise SystemExit("TensorBoard did not start: " + self.process.stderr.read()[-2000:])
                if time.monotonic() > deadline:
                    raise SystemExit("TensorBoard does not answer.")
                time.sleep(0.5)

    def __exit__(self, *_):
        self.process.stderr.close()
        self.process.terminate()
        self.process.wait()

    def get(self, route, **query):
        url = f"http://127.0.0.1:{self.port}/{route}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=120) as answer:
            body = answer.read()
        return json.loads(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)


def check(holds, what):
    if not holds:
        raise SystemExit(f"profile: FAILED: {what}")


def rows(table):
    ids = [column["id"] for column in table["cols"]]
    return [dict(zip(ids, (cell.get("v") for cell in row["c"]))) for row in table["rows"]]


def trace_of(board, run, host):
    """The names of the lanes and of the events in them, without those that the viewer leaves out at first."""
    trace = board.get(PLUGIN + "data", run=run, tag="trace_viewer@", host=host, full_dma="true", resolution=100000)
    lanes, events = {}, {}
    for event in trace["traceEvents"]:
        place = (event.get("pid"), event.get("tid"))
        if event.get("ph") == "M" and event["name"] == "thread_name":
            lanes[place] = event["args"]["name"]
        elif event.get("ph") == "X":
            events.setdefault(place, set()).add(event["name"])
    return {lanes[place]: names for place, names in events.items()}


def main():
    logdir, ranks = sys.argv[1], int(sys.argv[2])
    with Board(logdir) as board:
        runs = board.get(PLUGIN + "runs")
        check(len(runs) == 1, f"the runs are {runs}")
        run = runs[0]
        tools = board.get(PLUGIN + "run_tools", run=run)
        for tool in ("trace_viewer@", "overview_page", "framework_op_stats"):
            check(tool in tools, f"{tool} is not among {tools}")

        hosts = [host["hostname"] for host in board.get(PLUGIN + "hosts", run=run, tag="trace_viewer@")]
        hosts = [host for host in hosts if host != "ALL_HOSTS"]
        check(len(hosts) == ranks, f"the hosts are {hosts}, with {ranks} processes")
        for host in hosts:
            lanes = trace_of(board, run, host)
            check({"steps", "operations", "main thread", "data loading"} <= set(lanes), f"{host} has the lanes {set(lanes)}")
            check({str(step) for step in STEPS} <= lanes["steps"], f"{host} has the steps {lanes['steps']}")
            for name in ("forward 0", "backward 0", "Model", "DecoderLayer 0", "DecoderLayer 3", "RMSNorm", "Attention",
                         "rotary_emb", "RotaryEmbedding", "MLP", "gemm forward", "adamw"):
                check(name in lanes["operations"], f"{host} shows no {name}")
            if ranks > 1:
                check({"all_gather data", "reduce_scatter data"} <= lanes.get("collectives data", set()),
                      f"{host} shows the collectives {lanes.get('collectives data')}")

        host = "ALL_HOSTS" if ranks > 1 else hosts[0]
        overview = board.get(PLUGIN + "data", run=run, tag="overview_page", host=host)
        steps = [row["stepnum"] for table in overview if "cols" in table for row in rows(table) if "stepnum" in row]
        check(steps == [str(step) for step in STEPS], f"the overview has the steps {steps}")

        tables = board.get(PLUGIN + "data", run=run, tag="framework_op_stats", host=host)
        while isinstance(tables, list):
            tables = tables[0]
        operations = {row["operation"]: row for row in rows(tables)}
        for layer in range(4):
            name = f"forward/Model/DecoderLayer_{layer}/MLP/gemm_forward"
            check(name in operations, f"the operations lack {name}")
            count = operations[name]["occurrences"]
            check(count == 2 * len(STEPS) * ranks, f"{name} occurs {count} times")
    print(f"profile: TensorBoard's plugin shows {ranks} rank{'s' if ranks > 1 else ''}, steps, layers and operations.")


if __name__ == "__main__":
    main()
