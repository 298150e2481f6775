# SPDX-License-Identifier: Apache-2.0
"""The parts of the measurement, in their order. Each has NAME, LIMIT_SECONDS, measure(machine, data, save), which fills `data`, and
judge(data), which returns lines of the verdict and reads nothing else."""
from parts import facts, right, cost, overlap, clocks, hang

ALL = (facts, right, cost, overlap, clocks, hang)
