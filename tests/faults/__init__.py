"""Faults: the command line killed, starved, fed damaged and crafted files; run with `python -m tests.faults`.

Every case copies a small world of data and finished runs, disturbs it or the command, and is judged by what is left:
no traceback, nothing lost, no wrong result without a word, nothing executed.
"""
