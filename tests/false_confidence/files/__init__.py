# SPDX-License-Identifier: Apache-2.0
"""Scenarios of files that other tools would have written, and the models that write them."""
from files import damage, differences, faults, forms, hangs, mixtures

SCENARIOS = [*hangs.SCENARIOS, *faults.SCENARIOS, *differences.SCENARIOS, *forms.SCENARIOS, *damage.SCENARIOS, *mixtures.SCENARIOS]
