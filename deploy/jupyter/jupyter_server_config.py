"""jupyter-server-proxy: which machines' dashboards it shows.

Copy it to ~/.jupyter/ or /etc/jupyter/. Everybody who may use this server reaches what it may.
"""

import os

c = get_config()  # noqa: F821

hosts = ["localhost", "127.0.0.1"]
# The scheduler that notebooks use, where it runs on another machine: tcp://scheduler:8786.
address = os.environ.get("DASK_SCHEDULER_ADDRESS", "")
if address:
    hosts.append(address.rpartition("/")[2].rpartition(":")[0])
c.ServerProxy.host_allowlist = hosts
