# SPDX-License-Identifier: Apache-2.0
"""The scaffolding of the scripts under tests/. A script finds it by one line, whoever calls it:

    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # once more dirname a folder deeper
    import kit  # noqa: E402

outcome   pass, fail, skip; the exit status      job       a program that is started, waited for, ended
kansoku   the program: recorders, its answers    softgpu   programs for the software GPU, the executor's own account
table     a table in Markdown, scored            parts     evaluations that are stopped and go on
steps     a job's steps with something on and off
"""
import sys

sys.dont_write_bytecode = True
from kit.job import PATIENCE_S, Events, Job, end_process, start_ticks, wait_for  # noqa: E402,F401
from kit.kansoku import NO_PERMISSION, ROOT, Recorder, answer, basis, cost, default_kansoku, parser, record, record_command, switch_agent, words  # noqa: E402,F401
from kit.outcome import Impossible, Report, Wrong, expect, need, need_root, need_tool, run  # noqa: E402,F401
from kit.parts import Part, Parts, commit_of_tree, read_lines, run_until_stopped  # noqa: E402,F401
from kit.softgpu import compile_for_device, differences, is_sanitized, need_clang, read_counts, remove_files, the_file  # noqa: E402,F401
from kit.steps import mean_step_s, median_interval, pair_changes  # noqa: E402,F401
from kit.table import Table, interval  # noqa: E402,F401
