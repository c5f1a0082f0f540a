"""An entry for OpenDP's registry of deployments, from the files of a run.

Its form is `schemas/deployments-schema.yaml` of opendp/deployments-registry-data (July 2026); JSON
is YAML.  All but who publishes it and what for stands in privacy.json and results.json.
"""

import re
from pathlib import Path
from typing import Any

from cape.cli.privacy_check import read_privacy_file
from cape.computations import about
from cape.counting import number_of
from cape.errors import ConfigError
from cape.report import files


def registry_entry(folder: Path, *, contact: str, purpose: str) -> dict[str, Any]:
    """Return the entry of a consortium folder; ConfigError for a run without a guarantee."""
    stated = read_privacy_file(folder / "privacy.json")
    if not stated.private or stated.epsilon is None:
        problem, do = "this run promises nothing", "name the folder of a run with privacy."
        raise ConfigError("E016", problem=problem, do=do)
    results = files.read_json(folder / "results.json")
    title, _ = about(results["computation"])
    views = "; ".join(f"{view.who} sees {view.sees}" for view in stated.views)
    sites, people = number_of(stated.n_sites, "site"), number_of(stated.n_subjects, "person")
    sums = number_of(len(stated.events), "noisy sum")
    seen = "the noisy sum of each site is seen" if stated.single_sums_are_seen else "masked sums"
    simulated = "Simulated on one computer. " if results["simulation"] else ""
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", f"cape {results['run'][:8]}".lower()),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": f"{title} ({sites}, {people})",
                "data_curators": [contact],
                "description": f"{title}. {simulated}Status: {results['ended']}.",
                "intended_use": purpose,
                "data_product_type": "Summary statistics",
                "data_product_region": "that of the sites",
                "data_product_sector": "Healthcare",
                "publication_date": results["date"],
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": "the people whom each site lists; their number is public",
                "unprotected_quantities": " ".join(stated.not_covered),
            },
            "privacy_loss": {
                "privacy_unit": stated.unit,
                "privacy_unit_details": stated.relation,
                "privacy_parameters": {"epsilon": stated.epsilon, "delta": stated.delta},
                "privacy_parameters_details": f"exactly {stated.mu:.6g}-Gaussian DP",
            },
            "deployment_model": {
                "model_name": "Federated",
                "model_name_details": f"distributed noise on integers; {seen}",
                "actors": f"{views}. {' '.join(stated.assumptions)}",
                "release_type": "One release",
                "release_type_details": "each site keeps a ledger of all runs on the same people",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "all results follow from the released sums",
                "composition": f"Gaussian DP: mu^2 adds over {sums}, exactly",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": "settings are public and were chosen "
                "before the run; choices made by looking at the data are not accounted",
                "mechanisms": f"discrete Gaussian noise on integers; coinstac-cape "
                f"{results['version']}",
            },
            "administrative": {"registry_authors": [contact]},
        },
    }
