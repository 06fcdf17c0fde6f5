# SPDX-License-Identifier: Apache-2.0
"""Ports for the servers of a test, which no other process gets meanwhile."""
import socket


def hold_port():
    """A socket that keeps a port of the loopback device while it is open: nobody listens there, the kernel gives it to nobody else, and a
    server that sets SO_REUSEADDR may listen there."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def number_of(held):
    return held.getsockname()[1]
