"""Exits with 0 if this container's page answers: the health check of the Dockerfile."""

import os
import sys
from urllib.error import URLError
from urllib.request import urlopen

port = os.environ.get("GPUSCHED_HEALTH_PORT", "8787")
path = os.environ.get("GPUSCHED_HEALTH_PATH", "/health")
try:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=4):
        sys.exit(0)
except (URLError, OSError) as error:
    sys.exit(f"not healthy: {error}")
