"""`python -m benchmarks.tables`: write the tables in the README and the docs from stored results.

A table is placed between `<!-- begin generated: NAME -->` and the matching end; a test fails if one is out of date.
"""

from benchmarks.tables.pages import write_pages

write_pages()
