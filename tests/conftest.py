"""What every test runs under: two devices, cheap compilation, reproducible examples."""

import os

# Two devices whatever the machine, so that runs are always spread and padded.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
# Half the compile time, which is nearly all the time of these tests. Set XLA_FLAGS (even to nothing) to test
# the optimised code.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

from hypothesis import settings

settings.register_profile("sbil", deadline=None, derandomize=True, database=None, print_blob=False)
settings.load_profile("sbil")
