# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown."""


def interval(right, count):
    """Wilson's 95 % interval of a share (Wilson 1927), as "0.76 to 0.99"."""
    share, z = right / count, 1.96
    middle, half = share + z * z / (2 * count), z * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5
    return f"{max(0.0, (middle - half) / (1 + z * z / count)):.2f} to {min(1.0, (middle + half) / (1 + z * z / count)):.2f}"


class Table:
    """Printed row by row; counts the rows that are wrong, and keeps its text for those who go on later."""

    seen_wrong = 0  # rows of all tables: a part that lacks something behind them has failed all the same

    def __init__(self, title, *columns):
        self.lines, self.wrong = [], 0
        self.say(f"\n{title}\n" if title else "")
        self.say(f"| {' | '.join(columns)} |")
        self.say("|" + "---|" * len(columns))

    def say(self, line):
        self.lines.append(line)
        print(line, flush=True)

    def row(self, *cells, right=True):
        self.wrong += not right
        Table.seen_wrong += not right
        self.say("| " + " | ".join(map(str, cells)) + " |")

    def result(self):
        """As a part's result."""
        return {"wrong": self.wrong, "text": "\n".join(self.lines)}
