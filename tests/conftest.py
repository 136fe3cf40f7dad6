"""What every test runs under: two devices, cheap compilation, reproducible examples."""

import os
import signal
from importlib.metadata import version

from hypothesis import settings

# Two devices whatever the machine, so that runs are always spread and padded.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
# Compilation is nearly all the time of these tests; these take a quarter of it. Set XLA_FLAGS (even to nothing)
# to test the code as it runs elsewhere. XLA ends the process at a flag it does not know, hence the version.
CHEAP = ["--xla_backend_optimization_level=0"]
if version("jax").startswith("0.10."):
    CHEAP.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(CHEAP))

# A shell's background jobs are told to ignore Ctrl-C, and so would be the processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("sbil", deadline=None, derandomize=True, database=None, print_blob=False)
settings.load_profile("sbil")
