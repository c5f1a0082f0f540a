"""Choosing epsilon, before any data are touched.

Nothing here opens a file: the noise is known beforehand, so quality can be foretold.
"""

# %%
# Four hospitals with 256 people in all want 20 components at epsilon 1.
import cape

temporal = {"computation": "capedjica"}  # of matrices; images get capegica
plan = cape.budget(subjects=256, sites=4, epsilon=1.0, components=20, settings=temporal)
print(plan.advice.answer, "-", plan.advice.reason)
for change in plan.advice.changes:
    print("  would help:", change)

# %%
# The same question at other budgets, and for fewer components.
for components in (20, 10, 5):
    plan = cape.budget(subjects=256, sites=4, epsilon=1.0, components=components, settings=temporal)
    usable = [point.epsilon for point in plan.curve if point.answer == "yes"]
    print(f"{components:2d} components:", f"from epsilon {usable[0]:g}" if usable else "never")

# %%
# What epsilon means for one person: the odds of any conclusion change at most by exp(epsilon).
import math

for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
    best = math.exp(epsilon) / (1 + math.exp(epsilon))
    print(f"epsilon {epsilon:3g}: a guess whether somebody took part is right at most {best:.1%}")
