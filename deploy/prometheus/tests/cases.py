# SPDX-License-Identifier: Apache-2.0
"""Cases of the alerts. Each case makes a cluster and returns the alerts that must fire, by minute."""
import hang_cases
import lasting_cases
import network_cases
import open_cases
import quality_cases
import silent_cases
import step_cases
import straggler_cases
import suspect_cases
import text_cases
import unscraped_cases
import waiting_cases
from jobs import NOTHING_EVER


def of(*modules):
    return [case for module in modules for case in vars(module).values() if getattr(case, '__module__', '') == module.__name__ and callable(case)]


CASES = [case for case in of(straggler_cases, silent_cases, step_cases, hang_cases, unscraped_cases, quality_cases, network_cases, suspect_cases) if not case.__code__.co_argcount]
LASTING = [case for case in of(lasting_cases) if not case.__code__.co_argcount]
OPEN = of(open_cases)
VALUES = [case for case in of(waiting_cases) if not case.__code__.co_argcount]
TEXTS = [case for case in of(text_cases) if not case.__code__.co_argcount]
