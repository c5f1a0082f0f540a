"""What joint ICAs of several sites share: plan, left and right, recipe of maps, end of a run.

No computation: nothing here has a table, and nothing here knows which computations there are.
"""
