# SPDX-License-Identifier: Apache-2.0
"""Works until killed. Legal pairs of caller and callee: top->left, top->right, left->leaf, right->middle, middle->leaf."""
import os
import threading


def leaf(n):
    return n * 2 + 1


def middle(n):
    return leaf(n) + leaf(n + 1)


def left(n):
    a = leaf(n)
    return a + leaf(a)


def right(n):
    return middle(n) + middle(n + 1)


def top():
    n = 0
    while True:
        n = (left(n) + right(n)) % 1000


threading.Thread(target=top, daemon=True).start()
os.write(1, b"END\n")
top()
