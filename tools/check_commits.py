#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Messages of new commits: a subject of at most 72 columns, a blank line, a body that says why: check_commits.py [--root FOLDER] [--base COMMIT]

New are the commits between the base and HEAD, merges left out. Without --base: the merge base with origin/main; where there is none, the
newest commit more than four hours older than HEAD (tools/changed_tests.py). Exit status: 0 passed, 1 problems, 77 no git history.
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True
import changed_tests  # noqa: E402
import source_text  # noqa: E402

SUBJECT_MAX = 72
FIELD, RECORD = "\x1f", "\x1e"


def problems_of(subject, body):
    if len(subject) > SUBJECT_MAX:
        yield f"a subject of {len(subject)} columns, {SUBJECT_MAX} at most"
    if not body.strip():
        yield "no body: say why"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=source_text.repository_root(), help="folder of the repository [%(default)s]")
    parser.add_argument("--base", help="the commits after this one are new")
    options = parser.parse_args()
    base = options.base or changed_tests.default_base(options.root)
    log = base and changed_tests.git(options.root, "log", "--no-merges", f"--format=%h{FIELD}%s{FIELD}%b{RECORD}", f"{base}..HEAD")
    if log is None:
        print("commits: no git history" if not base else f"commits: no commit {base}")
        return source_text.SKIP_EXIT
    commits = [entry.strip("\n").split(FIELD) for entry in log.split(RECORD) if entry.strip("\n")]
    problems = [f"{name} {subject}: {why}" for name, subject, body in commits for why in problems_of(subject, body)]
    return source_text.report("commits", problems, f"{len(commits)} messages")


if __name__ == "__main__":
    sys.exit(main())
