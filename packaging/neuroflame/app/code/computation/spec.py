"""coinstac-cape: statistics of several sites."""

from framework import ComputationSpec, iterative_workflow, local_step, remote_step, site_output_step

from cape.engines.neuroflame.steps import answer, begin, combine, has_ended, write

SPEC = ComputationSpec(
    workflow=iterative_workflow(
        local_step(fn=answer, input_fn=begin),
        remote_step(fn=combine),
        site_output_step(fn=write),
        stop_when=has_ended,
        max_iterations=5000,
    )
)
