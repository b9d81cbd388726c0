"""A Dask cluster on this machine, until its standard input ends.

    python -m tests.support.dask_cluster WORKERS

It prints the address of its scheduler, then the process ids of its workers.
"""

from __future__ import annotations

import sys

from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(
        n_workers=int(sys.argv[1]), threads_per_worker=1, dashboard_address=None, silence_logs="ERROR"
    ) as cluster:
        pids = [str(nanny.pid) for nanny in cluster.workers.values()]
        print(cluster.scheduler_address, *pids, flush=True)
        sys.stdin.read()
