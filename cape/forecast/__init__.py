"""Whether the maps of a planned run will be worth anything, from public numbers only.

`rule` holds G and the form of a rule, `temporal` and `one_release` the rule of each model, and
`rules` finds that of a run.  Nothing here looks at data or decides about privacy.
"""
