"""`lake backfill`: columns that were added later, filled for rows that were there before.

backfill      plans, lets workers fill files, commits; what callers import
planning      which files are rewritten, and how far the table is filled then
fill          one file rewritten, in a worker
"""
