"""Whether the maps of a planned run will be worth anything, from public numbers only.

`size` holds G, the one number that quality depends on.  `temporal`, `spatial` and `template` hold
one rule each, of the form that `rule` gives; `rules` finds the one of a run.  Nothing here looks at
data, and nothing here decides about privacy.
"""
