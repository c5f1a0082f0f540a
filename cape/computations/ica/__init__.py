"""The parts that joint ICAs share: plan, left and right, recipe of maps, end of a run.

No module here is a computation or knows the computations.
"""
