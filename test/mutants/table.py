"""Mistakes that must not go unseen: each is a change of one place, and the test that finds it.

`python test/mutants/run.py` applies them one by one to a copy of the project and runs the named
test only; `docs/mutants.md` is written from this table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes
    ----------
    name : str
        What is wrong, as a phrase.
    file : str
        Where, below the project.
    old, new : str
        What stands there, exactly once, and what stands there instead.
    test : str
        The test that fails then, and passes otherwise.
    """

    name: str
    file: str
    old: str
    new: str
    test: str

    @property
    def area(self) -> str:
        """Part of the package that is changed."""
        parts = self.file.removesuffix(".py").split("/")[1:]
        return parts[0] if len(parts) > 1 else "top level"


UNIT, PROTOCOL, STATISTICAL = "test/unit/", "test/protocol/", "test/statistical/"
FLARE = UNIT + "test_flare_rounds.py::"

ADVERSARY = "test/adversary/"
LIAR = ADVERSARY + "test_aggregator.py::"
FALSE_SITES = (
    ADVERSARY + "test_aggregator.py"
    "::test_sites_beyond_those_that_the_owner_counted_are_refused_by_every_site"
)
THIEF = "test/adversary/test_thief_of_a_folder.py"
OWNER = "test/adversary/test_owner.py::"
BAD_FILES = "test/unit/test_bad_files.py::"
FIRST = UNIT + "test_first_settings.py::"
CONFOUNDS = UNIT + "test_data_confounds.py::test_"
PLANTED = UNIT + "test_planted_errors.py::test_a_planted_error_is_one_clear_finding"
NEIGHBOUR = "test/adversary/test_neighbour.py::"

MUTANTS = (
    Mutant(
        "a run in memory refers to a file that it does not write",
        "cape/simulation/memory.py", "            write_down(self._out / site / \"output\", err)\n",
        "            pass\n",
        UNIT + "test_memory_errors.py"
        "::test_a_run_in_memory_says_why_and_leaves_the_file_that_it_names",
    ),
    Mutant(
        "time left forgets that the report reads people again",
        "cape/cli/progress.py",
        "return self._total * self._a_subject + self._n_sites * SITE_PAGE + PAGE",
        "return self._n_sites * SITE_PAGE + PAGE",
        UNIT + "test_progress.py::test_time_left_is_right_from_the_tenth_subject_to_the_end",
    ),
    # -- what is left out of a person's runs
    Mutant(
        "scrubbed volumes stay in the run",
        "cape/data/cleaning.py", "            block = block[:, kept]\n",
        "            block = block[:, : kept.sum()]\n",
        CONFOUNDS + "scrubbed_volumes_and_confounds_leave_in_one_least_squares",
    ),
    Mutant(
        "the trend of a scrubbed run runs over the volumes that are left",
        "cape/data/cleaning.py", "    line = np.linspace(-1, 1, kept.size)\n",
        "    line = np.cumsum(kept) / kept.size\n",
        CONFOUNDS + "scrubbed_volumes_and_confounds_leave_in_one_least_squares",
    ),
    Mutant(
        "confounds come in the order in which nilearn's sets give them",
        "cape/data/strategies.py", "table = table[sorted(table.columns)]",
        "table = table[list(table.columns)]",
        CONFOUNDS + "confounds_come_in_one_order_whatever_nilearn_does",
    ),
    Mutant(
        "who moved more than the limit takes part",
        "cape/data/checks.py", "    if _motion(subject, config, findings):\n        return False\n",
        "    _motion(subject, config, findings)\n",
        CONFOUNDS + "who_fails_a_limit_of_motion_is_one_finding_and_counts_as_zeros",
    ),
    Mutant(
        "a site's own list of sessions is not read",
        "cape/data/discovery.py",
        "        if not said.get(subject, EVERYTHING).takes(entities):\n            continue\n", "",
        UNIT + "test_data_people.py::test_settings_and_the_sites_table_leave_runs_out",
    ),
    Mutant(
        "chance of maps on spheres is that of one template, not of the best",
        "cape/report/surface_names.py", "np.abs(a.T @ b).max(axis=1)", "np.abs(a.T @ b)[:, 0]",
        UNIT + "test_report_surface_names.py::test_of_smooth_noise_1_map_in_20_is_above_chance",
    ),
    Mutant(
        "labels are read without the numbers of their vertices",
        "cape/report/surface_names.py", "return dense[sphere.vertex]",
        "return dense[np.argsort(sphere.vertex)]",
        UNIT + "test_report_surface_names.py::test_a_map_gets_the_name_of_where_it_is",
    ),
    Mutant(
        "what a Mac leaves beside images is a person more",
        "cape/data/discovery.py", "for path in base.glob(pattern) if _visible(path))",
        "for path in base.glob(pattern))",
        FIRST + "test_hidden_files_are_nobody_and_a_task_of_rest_comes_first",
    ),
    Mutant(
        "echoes of a run are runs that are joined",
        "cape/data/discovery.py", '"stat", "echo")', '"stat")',
        UNIT + "test_data_people.py::test_two_echoes_are_one_run_in_two_versions",
    ),
    Mutant(
        "links into the annex above the derivatives are refused",
        "cape/data/discovery.py", "any(map(real.is_relative_to, annexes))", "False",
        FIRST + "test_links_into_the_annex_above_are_the_sites_own_files",
    ),
    Mutant(
        "links to any place are followed",
        "cape/data/discovery.py", '(top / ".git" / "annex" / "objects" for top in base.parents)',
        "(top for top in base.parents)",
        FIRST + "test_links_into_the_annex_above_are_the_sites_own_files",
    ),
    Mutant(
        "a table whose content was not fetched is no table",
        "cape/data/discovery.py", "if table.is_file() or table.is_symlink())",
        "if table.is_file())",
        FIRST + "test_links_into_the_annex_above_are_the_sites_own_files",
    ),
    Mutant(
        "images that are not packed have no strategies",
        "cape/data/strategies.py", '(".gz" if image.name.endswith("_bold.nii") else "")', '""',
        CONFOUNDS + "images_that_are_not_packed_have_strategies_too",
    ),
    Mutant(
        "cape init asks for images without a resolution by an empty one",
        "cape/planning/first_settings.py", "for key in order if wanted.get(key))",
        "for key in order if key in wanted)",
        FIRST + "test_of_several_versions_of_a_run_one_is_listed",
    ),
    Mutant(
        "milliseconds in a sidecar pass for seconds",
        "cape/data/images.py", "    if LONGEST_TR < tr < math.inf:",
        "    if False and LONGEST_TR < tr < math.inf:",
        PLANTED + "[TR in ms]",
    ),
    # -- the roster: who takes part is the owner's to say
    Mutant(
        "a site takes the aggregator's word for how many sites there are",
        "cape/protocol/plan.py", "if problem := config.wrong_sites(sites):",
        "if problem := \"\":",
        FALSE_SITES,
    ),
    Mutant(
        "more sites than the owner counted are no matter",
        "cape/config.py", "if self.expected_sites not in (0, n_sites):",
        "if self.expected_sites > n_sites:",
        FALSE_SITES,
    ),
    Mutant(
        "names of sites are not compared",
        "cape/config.py",
        "if self.expected_names and sorted(self.expected_names) != sorted(sites):",
        "if len(self.expected_names) > len(sites):",
        ADVERSARY + "test_aggregator.py"
        "::test_a_site_that_takes_the_place_of_a_named_one_is_refused_by_every_site",
    ),
    Mutant(
        "a roster may be out of order",
        "cape/protocol/plan.py", "if sites != sorted(set(sites), key=str.encode):",
        "if len(set(sites)) < len(sites):",
        ADVERSARY + "test_aggregator.py"
        "::test_a_roster_out_of_order_or_with_a_site_twice_is_refused_by_every_site",
    ),
    Mutant(
        "a list of pinned keys is replaced by another one",
        "cape/site/identity.py", 'if out.exists() and out.read_text(encoding="utf-8") != text:',
        "if not text:",
        PROTOCOL + "test_pinned.py"
        "::test_one_file_to_the_owner_and_one_back_pin_the_keys_of_all",
    ),
    Mutant(
        "a site of which nobody passes is not told",
        "cape/site/site_data.py", "if not n_failed:", "if n_failed == n_listed:",
        OWNER + "test_a_site_of_which_nobody_passes_is_told_at_once_and_nobody_else_is",
    ),
    # -- keys that sites remember
    Mutant(
        "a site that was met may show another key",
        "cape/site/identity.py", "            if twice or changed or moved:\n",
        "            if twice or moved:\n",
        LIAR + "test_keys_in_the_middle_of_a_second_run_end_it_at_every_site",
    ),
    Mutant(
        "a known key may come under another name",
        "cape/site/identity.py", "            if twice or changed or moved:\n",
        "            if changed:\n",
        LIAR + "test_known_keys_under_other_names_or_twice_are_refused",
    ),
    Mutant(
        "a site that lost its list meets all anew",
        "cape/site/identity.py",
        "            if own[-1:] != [identity_public_key(secret).hex()]:\n",
        "            if own and own[-1:] != [identity_public_key(secret).hex()]:\n",
        LIAR + "test_a_site_that_lost_what_it_met_does_not_meet_all_anew_in_silence",
    ),
    Mutant(
        "names that nobody met are believed at a site that meets nobody new",
        "cape/site/identity.py", "            if new and not self.may_add:\n",
        "            if new and not hexed:\n",
        LIAR + "test_a_site_that_meets_nobody_new_refuses_every_unknown_name",
    ),
    Mutant(
        "what a site met is not asked about where sites may drop out",
        "cape/protocol/secagg_stages.py",
        "pinned=site.known_keys(shown) if signs(site.config) else None",
        "pinned=shown if signs(site.config) else None",
        LIAR + "test_keys_in_the_middle_of_a_second_run_end_it_at_every_site",
    ),
    Mutant(
        "a folder that is set back makes another identity key",
        "cape/site/context.py", 'fresh = self.noise.stream("identity").token_bytes(KEY_BYTES)',
        'fresh = __import__("os").urandom(KEY_BYTES)',
        THIEF + "::test_a_folder_restored_before_any_exchange_gives_the_same_bytes",
    ),
    Mutant(
        "the aggregator's word for keys needs nobody's consent",
        "cape/site/policy.py",
        'config.key_trust == "aggregator" and not self.allow_relayed_keys',
        'config.key_trust == "aggregator" and self.veto',
        UNIT + "test_policy.py"
        "::test_a_plan_above_the_shipped_policy_is_refused_by_the_name_of_its_line",
    ),
    Mutant(
        "a JSON document with a key twice is read",
        "cape/config.py", "    return json.loads(text, object_pairs_hook=unique_keys)\n",
        "    return json.loads(text)\n",
        UNIT + "test_flare_job.py::test_a_job_with_a_key_twice_is_none",
    ),
    Mutant(
        "an owner need not say how many sites there are",
        "cape/protocol/join.py",
        'if config.private and config.noise == "correlated" and not config.expected_sites:',
        'if config.private and config.noise != "correlated" and not config.expected_sites:',
        ADVERSARY + "test_aggregator.py"
        "::test_an_owner_who_does_not_say_how_many_sites_there_are_gets_no_card",
    ),
    # -- privacy: sensitivity, calibration, accountant, sampler
    Mutant(
        "sensitivity of a ball C in place of 2 C",
        "cape/privacy/mechanisms.py", "        return 2 * clip_int\n", "        return clip_int\n",
        UNIT + "test_privacy_mechanisms.py::test_the_sensitivity_of_a_ball_is_its_diameter",
    ),
    Mutant(
        "sensitivity of rounded psd vectors without the rounding term",
        "cape/privacy/mechanisms.py", "_ceil_root(2 * clip_int**2) + rounding + 1",
        "_ceil_root(2 * clip_int**2) + 0 * rounding",
        UNIT + "test_privacy_mechanisms.py"
        "::test_rounding_can_push_psd_vectors_further_apart_than_sqrt_two_clips",
    ),
    Mutant(
        "half the noise variance is planned",
        "cape/privacy/mechanisms.py", "variance=math.ceil(delta_int**2 * view / (m**2 * shares)),",
        "variance=math.ceil(delta_int**2 * view / (2 * m**2 * shares)),",
        UNIT + "test_privacy_mechanisms.py::test_the_worked_plan_has_its_reference_integers",
    ),
    Mutant(
        "one more honest share is counted than there is (S_H = S)",
        "cape/privacy/cost.py", "top, bottom = delta_int**2, shares * variance",
        "top, bottom = delta_int**2, (shares + 1) * variance",
        UNIT + "test_privacy_mechanisms.py"
        "::test_mu_is_the_sensitivity_over_the_noise_of_the_unknown_shares",
    ),
    Mutant(
        "Gaussian seeds are charged as if replies were masked",
        "cape/privacy/cost.py",
        "top * (seed_ratio + shares), bottom * (seed_ratio + 1)",
        "top * (seed_ratio + 1), bottom * (seed_ratio + 1)",
        UNIT + "test_privacy_mechanisms.py"
        "::test_gaussian_seeds_are_charged_by_the_corrected_formula_and_calibrated_for_it",
    ),
    Mutant(
        "a plan with a clip above the site's own is accepted",
        "cape/privacy/mechanisms.py", "if event.clip_int > _clip_int(clip, event.log2_gamma):",
        "if event.clip_int > 2 * _clip_int(clip, event.log2_gamma):",
        UNIT + "test_privacy_mechanisms.py"
        "::test_a_site_refuses_a_release_whose_integers_do_not_fit_each_other",
    ),
    Mutant(
        "epsilon is rounded down",
        "cape/privacy/accounting.py",
        "lambda epsilon: gdp_delta(epsilon=epsilon, mu=mu) > delta)[1]",
        "lambda epsilon: gdp_delta(epsilon=epsilon, mu=mu) > delta)[0]",
        UNIT + "test_privacy_accounting.py"
        "::test_epsilon_is_the_upper_end_and_mu_the_lower_end",
    ),
    Mutant(
        "the budget has a tolerance",
        "cape/privacy/cost.py", "    if upper.mu2 <= limit.mu2:\n",
        "    if upper.mu2 <= limit.mu2 * (1 + Fraction(1, 10**12)):\n",
        UNIT + "test_privacy_ledger.py"
        "::test_a_budget_is_spent_exactly_and_not_one_part_in_2_to_the_200_further",
    ),
    Mutant(
        "a release may be charged twice",
        "cape/privacy/ledger.py",
        "if any(key == (old.phase, old.round, old.field) for old in self.events):",
        "if key in ():",
        UNIT + "test_privacy_ledger.py::test_a_release_is_charged_once",
    ),
    Mutant(
        "the bias of a printed answer keeps its scale",
        "cape/algorithms/infomax.py", "moments.vector[...] /= scale_h", "pass",
        UNIT + "test_algorithms_infomax.py"
        "::test_the_parts_of_a_printed_answer_have_norm_one_at_most",
    ),
    Mutant(
        "a ledger that lost an entry is believed",
        "cape/privacy/ledger.py", "if chain_head(self.events) != self.head:", "if not self.head:",
        UNIT + "test_privacy_ledger.py"
        "::test_a_ledger_that_does_not_match_its_digest_cannot_be_made",
    ),
    Mutant(
        "zero is drawn twice as often as it should be",
        "cape/privacy/noise.py", "once = ~(negative & (x == 0))", "once = ~(negative & (x != x))",
        UNIT + "test_privacy_noise.py::test_zero_is_counted_once_not_with_two_signs",
    ),
    Mutant(
        "the sampler reduces words modulo its bound without dropping the rest",
        "cape/privacy/noise.py", "last = np.uint64(2**64 // bound * bound - 1)",
        "last = np.uint64(2**64 - 1)",
        UNIT + "test_privacy_noise.py::test_words_of_the_uneven_rest_are_dropped",
    ),
    Mutant(
        "close decisions of the sampler are made by floats",
        "cape/privacy/noise.py", "for i in np.flatnonzero(np.abs(uniform - threshold) <= band):",
        "for i in np.flatnonzero(np.abs(uniform - threshold) < 0.0):",
        UNIT + "test_privacy_noise.py"
        "::test_the_vectorised_decision_uses_the_exact_one_at_its_threshold",
    ),
    Mutant(
        "the discrete Gaussian has another law",
        "cape/privacy/noise.py",
        "bottom = 2 * variance * scale**2", "bottom = 3 * variance * scale**2",
        STATISTICAL + "test_sampler.py::test_small_variances_follow_the_exact_law",
    ),
    Mutant(
        "two contexts of a secret share a stream",
        "cape/secagg/keys.py", "            for part in context\n",
        "            for part in context[:1]\n",
        UNIT + "test_secagg_draws.py"
        "::test_every_part_of_a_context_and_the_secret_name_the_stream",
    ),
    Mutant(
        "the view of Gaussian zero-sum noise forgets the colluders",
        "cape/papers/correlated.py", "Fraction(n_sites, honest) * (r + honest) / (r + 1)",
        "Fraction(n_sites, honest) * (r + n_sites) / (r + n_sites + 1)",
        UNIT + "test_papers_correlated.py"
        "::test_the_factor_is_the_pseudo_inverse_for_all_colluders_and_ratios",
    ),
    # -- secagg: integers, masks, keys, shares
    Mutant(
        "the exact integer clip lets twice the norm through",
        "cape/secagg/field.py",
        "    over = n2 > clip_int**2\n", "    over = n2 > 4 * clip_int**2\n",
        UNIT + "test_secagg_field.py"
        "::test_the_integer_clip_alone_keeps_a_ball_row_inside_the_bound",
    ),
    Mutant(
        "a psd row past the bound is floored in place of dropped",
        "cape/secagg/field.py",
        'u[m] = 0 if shape == "psd" else', 'u[m] = 0 if shape == "none" else',
        UNIT + "test_secagg_field.py::test_the_integer_clip_drops_a_psd_row_instead_of_flooring_it",
    ),
    Mutant(
        "one bad entry does not drop its row",
        "cape/secagg/field.py",
        "~np.all(np.isfinite(rows), axis=1)", "~np.any(np.isfinite(rows), axis=1)",
        UNIT + "test_secagg_field.py"
        "::test_a_row_with_a_non_finite_entry_counts_as_zeros_and_spares_the_others",
    ),
    Mutant(
        "a sum of uniform numbers is taken for a result",
        "cape/secagg/field.py", "if np.any((signed > bound) | (signed < -bound)):",
        "if np.any(signed > bound + (1 << 62)):",
        UNIT + "test_secagg_field.py::test_an_entry_past_the_bound_is_refused_as_a_failed_mask",
    ),
    Mutant(
        "masks of two sites have the same sign",
        "cape/secagg/keys.py", "if own < peer.encode() else", "if peer else",
        UNIT + "test_secagg_keys.py::test_the_terms_of_all_sites_cancel_exactly",
    ),
    Mutant(
        "masks are the same in every round",
        "cape/secagg/keys.py",
        "return phase + u64(self.round) + name", "return phase + u64(0) + name",
        UNIT + "test_secagg_keys.py::test_sites_with_different_labels_do_not_cancel",
    ),
    Mutant(
        "an all-zero shared secret is used",
        "cape/secagg/keys.py", "    if not any(shared):\n", "    if not shared:\n",
        UNIT + "test_secagg_keys.py"
        "::test_an_all_zero_secret_is_refused_even_if_the_library_returns_it",
    ),
    Mutant(
        "a site does not look for its own key in the roster",
        "cape/secagg/keys.py", "    if own not in entries:\n", "    if not entries:\n",
        UNIT + "test_secagg_keys.py::test_a_changed_roster_is_refused",
    ),
    Mutant(
        "numbers of subjects are not bound into the keys",
        "cape/secagg/keys.py", "u64(entry.n_subjects), keys]", "u64(0), keys]",
        UNIT + "test_secagg_keys.py::test_the_roster_digest_binds_every_field",
    ),
    Mutant(
        "a used key set stays in the vault",
        "cape/secagg/site_stages.py", "key_sets=state.key_sets[1:],", "key_sets=state.key_sets,",
        UNIT + "test_secagg_stages.py::test_a_used_key_set_is_gone_from_the_state",
    ),
    Mutant(
        "shares of one release are opened twice",
        "cape/secagg/site_stages.py", "return replace(state, release=None), message",
        "return state, message",
        UNIT + "test_secagg_stages.py"
        "::test_shares_are_opened_once_and_only_for_enough_valid_signatures",
    ),
    Mutant(
        "both secrets of one site are opened",
        "cape/secagg/site_stages.py", "dropped = set(release.participants) - set(survivors)",
        "dropped = set(release.participants)",
        UNIT + "test_secagg_stages.py::test_nobody_opens_both_secrets_of_one_site",
    ),
    Mutant(
        "a site opens shares without checking who signed",
        "cape/secagg/site_stages.py",
        "        verify_signature(identities[signer], statement, signature, site=signer)",
        "        len(identities[signer] + statement + signature)",
        UNIT + "test_secagg_stages.py"
        "::test_shares_are_opened_once_and_only_for_enough_valid_signatures",
    ),
    Mutant(
        "a reconstructed self mask is not compared with its commitment",
        "cape/secagg/aggregator_stages.py",
        "if commit(seed) != commitment(entries[u], pending.key_set):", "if not seed:",
        UNIT + "test_secagg_stages.py"
        "::test_a_changed_share_is_found_by_the_commitment_or_the_advertised_key",
    ),
    Mutant(
        "one share fewer than the threshold gives the secret",
        "cape/secagg/shamir.py",
        "for _ in range(threshold - 1)]", "for _ in range(max(threshold - 2, 0))]",
        UNIT + "test_secagg_shamir.py"
        "::test_shares_are_the_polynomial_at_1_2_3_in_little_endian",
    ),
    Mutant(
        "an identity key that is not the pinned one is accepted",
        "cape/secagg/keys.py", "if entry.identity_key != pinned.get(entry.site):",
        "if entry.site not in pinned:",
        UNIT + "test_secagg_seals.py::test_identity_keys_must_be_the_pinned_ones",
    ),
    # -- wire: what may leave, and what is believed
    Mutant(
        "a field without a marker leaves a site",
        "cape/protocol/wire.py",
        'if not any(isinstance(m, Marker) for m in getattr(hint, "__metadata__", ())):',
        "if hint is None:",
        UNIT + "test_wire.py::test_a_field_without_a_marker_does_not_leave",
    ),
    Mutant(
        "unknown fields are dropped in silence",
        "cape/protocol/wire.py",
        "if not isinstance(document, dict) or is_strange or not needed <= given:",
        "if not isinstance(document, dict) or not needed <= given:",
        UNIT + "test_wire.py::test_missing_and_unknown_fields_are_refused",
    ),
    Mutant(
        "a document of any size is parsed",
        "cape/protocol/wire.py",
        "    if len(text) > limit:\n", "    if len(text) > 1000 * limit:\n",
        UNIT + "test_wire.py::test_documents_have_a_largest_size",
    ),
    Mutant(
        "an array that is not finite arrives",
        "cape/protocol/wire.py",
        'array = np.frombuffer(raw, dtype=dtype).reshape(shape).astype(dtype.newbyteorder("="))\n'
        '    if dtype.kind == "f" and not np.all(np.isfinite(array)):',
        'array = np.frombuffer(raw, dtype=dtype).reshape(shape).astype(dtype.newbyteorder("="))\n'
        '    if dtype.kind == "c" and not np.all(np.isfinite(array)):',
        UNIT + "test_wire.py::test_an_array_that_is_not_finite_does_not_arrive",
    ),
    Mutant(
        "a short text of a state fills the memory",
        "cape/protocol/wire.py",
        "inflater.decompress(_bytes_back(document, \"\"), MAX_STATE)",
        "inflater.decompress(_bytes_back(document, \"\"))",
        UNIT + "test_wire.py::test_a_constant_that_would_fill_the_memory_is_refused_first",
    ),
    Mutant(
        "a text of a state of any length is kept",
        "cape/protocol/wire.py",
        "if not isinstance(document, str) or len(document) > MAX_STATE:",
        "if not isinstance(document, str):",
        UNIT + "test_wire.py::test_a_constant_of_another_form_is_refused_by_its_path",
    ),
    Mutant(
        "half of a compressed text is read",
        "cape/protocol/wire.py",
        "if not inflater.eof or inflater.unused_data:", "if inflater.unused_data:",
        UNIT + "test_wire.py::test_a_constant_of_another_form_is_refused_by_its_path",
    ),
    Mutant(
        "one message has several forms of base64",
        "cape/protocol/wire.py",
        'if base64.b64encode(raw).decode("ascii") != document:', "if raw is None:",
        UNIT + "test_wire.py::test_bytes_that_are_none_are_refused",
    ),
    Mutant(
        "the mask of a site is sent before hashes are compared",
        "cape/protocol/join.py", "space=data.space.outline(),", "space=data.space,",
        PROTOCOL + "test_labels.py::test_labels_travel_after_join_once",
    ),
    Mutant(
        "labels are believed whatever their digest",
        "cape/feature_space.py",
        "if (labelled.digest, labelled.n_features) != (whole.digest, whole.n_features):",
        "if labelled.n_features != whole.n_features:",
        PROTOCOL + "test_labels.py"
        "::test_labels_other_than_those_of_the_digest_are_refused_by_everybody",
    ),
    Mutant(
        "more labels are unpacked than the grid holds",
        "cape/feature_space.py",
        "raw = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), size + 1)",
        "raw = zlib.decompressobj().decompress(base64.b64decode(text, validate=True))",
        UNIT + "test_feature_space.py::test_no_more_is_unpacked_than_the_grid_holds",
    ),
    Mutant(
        "grayordinates of another order are summed with the others",
        "cape/data/cifti.py",
        "if _plain(found) == _plain(wanted) and _grid(features) == (space.shape, space.affine):",
        "if found.n_features == wanted.n_features:",
        UNIT + "test_cifti.py::test_a_file_that_does_not_fit_is_one_clear_finding",
    ),
    Mutant(
        "a series is read time by time",
        "cape/data/cifti.py",
        "stored = np.frombuffer(block, dtype=head.dtype).reshape(rows.shape)",
        "stored = np.frombuffer(block, dtype=head.dtype).reshape(rows.shape[::-1]).T",
        UNIT + "test_cifti.py::test_a_series_of_parcels_is_read_as_nibabel_reads_it",
    ),
    Mutant(
        "XML of a CIFTI file may declare entities",
        "cape/data/gifti.py", 'if "<!ENTITY" in text:', "if False:",
        UNIT + "test_cifti.py::test_a_file_that_does_not_fit_is_one_clear_finding",
    ),
    Mutant(
        "XML of two bytes a letter is searched as if it had one",
        "cape/data/gifti.py", 'if "\\0" in text:', "if False:",
        UNIT + "test_cifti.py::test_a_file_that_does_not_fit_is_one_clear_finding",
    ),
    Mutant(
        "more colluders than assumed leave as many shares where sites may drop out",
        "cape/secagg/graph.py",
        "    one_list = 2 * survivors > n_sites + colluders\n", "    one_list = True\n",
        UNIT + "test_report_files.py"
        "::test_of_drop_outs_more_colluders_than_two_lists_allow_leave_one_share",
    ),
    Mutant(
        "invented sites cost alike whatever carries the sum",
        "cape/site/context.py",
        'if self.config.aggregation == "secagg":', "if False:",
        PROTOCOL + "test_pinned.py::test_what_invented_sites_cost_follows_from_the_carrier",
    ),
    Mutant(
        "an aggregator of NeuroFLAME names a folder by the name of a run",
        "cape/neuroflame/steps.py",
        "        if not RUN_NAME.fullmatch(run):\n", "        if False:\n",
        UNIT + "test_neuroflame.py::test_the_name_of_a_run_is_no_folder",
    ),
    Mutant(
        "a site of NeuroFLAME hears at the end who counted as zeros",
        "cape/neuroflame/steps.py",
        'for name in ("site-error.txt", NOTICE_FILE):', 'for name in ("site-error.txt",):',
        UNIT
        + "test_neuroflame.py::test_who_counts_as_zeros_is_told_from_the_first_exchange_on",
    ),
    Mutant(
        "a site's own results are for everybody while NeuroFLAME's folder gets them",
        "cape/neuroflame/steps.py",
        "        write_atomically(target, source.read_bytes())\n",
        "        shutil.copy2(source, target)\n",
        UNIT + "test_neuroflame.py"
        "::test_a_sites_own_results_are_its_own_wherever_they_are_written",
    ),
    Mutant(
        "an image of templates is unpacked before it is measured",
        "cape/data/space.py",
        "    if shape[3] * space.n_features > MOST_TEMPLATE_NUMBERS:\n", "    if False:\n",
        UNIT + "test_data_templates.py"
        "::test_an_image_of_templates_is_measured_before_it_is_unpacked",
    ),
    Mutant(
        "a CIFTI file is read as a mask",
        "cape/data/space.py",
        "        if not isinstance(image, nib.nifti1.Nifti1Pair):  # such as a CIFTI file\n",
        "        if False:\n",
        UNIT + "test_cifti.py::test_a_cifti_file_is_no_mask",
    ),
    Mutant(
        "where sites may drop out, keys are remembered before their signatures are checked",
        "cape/protocol/secagg_stages.py",
        "    stages.check_advertisements(state.setup, listed.entries, pinned=None)\n", "",
        LIAR + "test_a_key_that_nobody_signed_with_is_not_remembered",
    ),
    Mutant(
        "an owner may name a person",
        "cape/config.py", 'if any(key == "sub" for key, _ in pairs):', "if False:",
        OWNER + "test_no_setting_names_a_person",
    ),
    Mutant(
        "a filter that fits nobody stops the site, which tells its owner so",
        "cape/data/issues.py", 'NO_BIDS_MATCH = (4, "S",', 'NO_BIDS_MATCH = (4, "E",',
        OWNER + "test_a_filter_of_bids_names_does_not_ask_who_has_which_run",
    ),
    Mutant(
        "a run in two versions stops the site, which tells its owner so",
        "cape/data/issues.py", 'RUN_VERSIONS = (5, "X",', 'RUN_VERSIONS = (5, "E",',
        OWNER + "test_a_filter_of_bids_names_does_not_ask_who_has_which_run",
    ),
    Mutant(
        "a CIFTI file has as many points as it says, whatever it holds",
        "cape/data/cifti.py",
        "if min(said, default=0) < 0 or sum(said) > MOST_POINTS:", "if False:",
        UNIT + "test_cifti.py::test_a_file_that_does_not_fit_is_one_clear_finding",
    ),
    Mutant(
        "points of a sphere may stand in another file",
        "cape/data/gifti.py",
        "    points = [(a, t) for a, t in arrays",
        "    import nibabel\n\n    return np.asarray(nibabel.load(path).agg_data(\"pointset\"))"
        "\n    points = [(a, t) for a, t in arrays",
        OWNER + "test_a_sphere_that_names_a_persons_file_as_its_points_is_not_read",
    ),
    Mutant(
        "points of a sphere are unpacked to their end",
        "cape/data/gifti.py", ".decompress(raw, size + 1)", ".decompress(raw)[: size + 1]",
        UNIT + "test_cifti.py::test_a_sphere_is_never_unpacked_further_than_its_points",
    ),
    Mutant(
        "a peer's structure may have a vertex twice",
        "cape/grayordinates.py",
        "        if len(np.unique(joined, axis=0)) < len(joined):\n", "        if False:\n",
        UNIT + "test_cifti.py::test_vertices_outside_twice_or_packed_without_end_are_refused",
    ),
    Mutant(
        "a structure is taken for that of another digest",
        "cape/feature_space.py",
        "            if (said.digest, said.n_features, said.kind, said.affine) != (\n",
        "            if (whole.digest, said.n_features, said.kind, said.affine) != (\n",
        UNIT + "test_cifti.py::test_a_structure_travels_and_only_with_its_digest",
    ),
    Mutant(
        "the mirror of grayordinates leaves the hemispheres where they are",
        "cape/algorithms/surface_kernel.py",
        "of_other = _transposed(F, other.sphere * (-1.0, 1.0, 1.0), partner.values)",
        "of_other = _transposed(F, other.sphere, partner.values)",
        UNIT + "test_surface_kernel.py"
        "::test_the_mirror_swaps_the_hemispheres_and_the_sides_of_the_voxels",
    ),
    Mutant(
        "vertices that are no pairs are mirrored",
        "cape/algorithms/surface_kernel.py",
        "return bool(np.abs(apart).max() <= _CLOSE)", "return bool(np.abs(apart).max() <= 9.0)",
        UNIT + "test_surface_kernel.py::test_no_mirror_where_vertices_are_no_pairs",
    ),
    Mutant(
        "hemispheres and voxels are ordered by their density",
        "cape/algorithms/surface_kernel.py",
        "return _kept(modes.values, _CARRIED_MODES) / mean, of_voxels",
        "return _kept(modes.values, _CARRIED_MODES), of_voxels",
        UNIT + "test_surface_kernel.py::test_columns_are_the_leading_eigenvectors_of_the_kernel",
    ),
    # -- phases, the door, drivers
    Mutant(
        "the gate of the spatial start follows a site's own data",
        "cape/protocol/secure_sum.py",
        "        query = self._query(model)\n        event = self.event(site, model)\n",
        "        whitener = getattr(model, 'whitener', None)\n"
        "        if whitener is not None:\n"
        "            own = float(next(chunks(self.stage.input(site, model))).ravel()[0]) > 0.0\n"
        "            model = replace(model, whitener=replace(whitener, gate=own))\n"
        "        query = self._query(model)\n        event = self.event(site, model)\n",
        PROTOCOL + "test_dither.py::test_all_parties_ask_the_same_question_in_every_round",
    ),
    Mutant(
        "one site steps with a gain of its own",
        "cape/protocol/secure_sum.py",
        "        query = self._query(model)\n        event = self.event(site, model)\n",
        "        state = getattr(model, 'unmixing', None)\n"
        "        if state is not None and site.id == 'local1':\n"
        "            model = replace(model, unmixing=replace(state, W=1.01 * state.W))\n"
        "        query = self._query(model)\n        event = self.event(site, model)\n",
        PROTOCOL + "test_dither.py::test_all_parties_ask_the_same_question_in_every_round",
    ),
    Mutant(
        "the dither is made from the subjects that are asked",
        "cape/algorithms/quasi_newton.py",
        "            turn = self.turn(state.round, size)\n",
        "            turn = self.turn(state.round, size)\n"
        "            turn = None if turn is None else turn * (1.0 + float(stack[:, 0].std()))\n",
        UNIT + "test_algorithms_quasi_newton.py::test_a_row_does_not_depend_on_the_stack",
    ),
    Mutant(
        "the answers are credited with the dither of the other round of the pair",
        "cape/algorithms/quasi_newton.py",
        "        R, turn = len(state.W), self.turn(state.round, len(mean))\n",
        "        R, turn = len(state.W), self.turn(state.round + 1, len(mean))\n",
        UNIT + "test_algorithms_quasi_newton.py"
        "::test_answers_of_an_optimum_are_confirmed_and_answers_of_noise_are_not",
    ),
    Mutant(
        "at small budgets runs are confirmed whatever subjects have in common",
        "cape/algorithms/verdict.py",
        "_OVERLAP_WIDE if dither >= WIDE else", "0.0 if dither >= WIDE else",
        UNIT + "test_algorithms_verdict.py"
        "::test_at_small_budgets_subjects_must_have_enough_in_common",
    ),
    Mutant(
        "a state that lost a charge is believed",
        "cape/coinstac/documents.py",
        "    return Ledger(budget=charges.budget, events=events, head=charges.head)",
        "    from cape.privacy.ledger import chain_head\n\n"
        "    return Ledger(budget=charges.budget, events=events, head=chain_head(events))",
        UNIT + "test_trace.py::test_charges_that_are_not_those_of_the_ledger_are_refused[110]",
    ),
    Mutant(
        "the records show who had fallen silent before",
        "cape/protocol/model.py", "line + 1 if entry.site in inside else before", "line + 1",
        UNIT + "test_trace.py::test_who_falls_silent_is_in_the_records_until_then",
    ),
    Mutant(
        "at middle budgets runs are confirmed whatever subjects have in common",
        "cape/algorithms/verdict.py",
        "_OVERLAP if error > SURE_ERROR else 0.0", "0.0",
        UNIT + "test_algorithms_verdict.py"
        "::test_at_small_budgets_subjects_must_have_enough_in_common",
    ),
    Mutant(
        "the verdict is not told what subjects have in common",
        "cape/computations/capedjica/temporal.py", "subspace=released,", "subspace=None,",
        PROTOCOL + "test_dither.py::test_the_verdict_knows_what_subjects_have_in_common",
    ),
    Mutant(
        "the overlap of subjects counts the noise as well",
        "cape/algorithms/pca.py",
        "float(np.sum(self.eigenvalues**2)) - self.noise_std**2 * d * (d + 1) / 2.0",
        "float(np.sum(self.eigenvalues**2))",
        UNIT + "test_algorithms_pca.py::test_the_overlap_is_what_subjects_have_in_common",
    ),
    Mutant(
        "the filter expects answers twice as steep as they are",
        "cape/algorithms/quasi_newton.py", "SLOPE = 0.2\n", "SLOPE = 0.4\n",
        UNIT + "test_algorithms_quasi_newton.py"
        "::test_what_was_found_in_space_is_not_lost_to_the_noise_of_a_small_budget",
    ),
    Mutant(
        "the rank guard cuts one network at the edge",
        "cape/algorithms/pca.py", " or R - k < FEWEST_CUT * R", "",
        UNIT + "test_algorithms_pca.py::test_one_or_two_directions_in_the_noise_are_kept",
    ),
    Mutant(
        "networks under the noise edge are advised away",
        "cape/report/confidence.py",
        "suggested = rank.k if rank.status in (\"gap\", \"reduced\") else None",
        "suggested = rank.k if rank.status in (\"gap\", \"reduced\") else above",
        UNIT + "test_report_confidence.py::test_networks_under_the_noise_edge_are_not_advised_away",
    ),
    Mutant(
        "volumes of moved heads count like others in the subspace",
        "cape/computations/capedjica/temporal.py",
        "    input=subject_views.steady,\n", "    input=subject_views.raw,\n",
        "test/e2e/test_quality.py::test_volumes_of_moved_heads_lose_no_network",
    ),
    Mutant(
        "a spike is cut to the limit and still takes a direction",
        "cape/protocol/subject_views.py",
        "np.where(size > limit, np.float32(0.0), Y)",
        "np.where(size > limit, np.float32(0.6) * Y, Y)",
        UNIT + "test_subject_views.py::test_spikes_take_no_direction_of_the_common_subspace",
    ),
    Mutant(
        "the verdict counts each dithered round twice",
        "cape/algorithms/quasi_newton.py",
        "                information=before.information + (self.dither / noise_std) ** 2,\n",
        "                information=before.information + (self.dither / noise_std) ** 2 / 4,\n",
        UNIT + "test_algorithms_quasi_newton.py::test_z_of_noise_is_standard_normal",
    ),
    Mutant(
        "the rank guard cuts networks that many subjects share",
        "cape/algorithms/pca.py", " or eigenvalues[k] > max(top, COMMON):", ":",
        UNIT + "test_algorithms_pca.py"
        "::test_more_budget_never_cuts_more_where_components_are_too_few",
    ),
    Mutant(
        "noise is drawn before the charge",
        "cape/protocol/secure_sum.py",
        """        try:
            site.charge(event)
        except PrivacyBudgetError:
            return None
        if event.private:
            entropy = noise_stream(site, event, question or site.transcript, total)
            total = total + discrete_gaussian(event.variance, query.size, entropy)
""",
        """        if event.private:
            entropy = noise_stream(site, event, question or site.transcript, total)
            total = total + discrete_gaussian(event.variance, query.size, entropy)
        try:
            site.charge(event)
        except PrivacyBudgetError:
            return None
""",
        PROTOCOL + "test_engine.py"
        "::test_g7_every_charge_stands_before_the_first_byte_of_its_noise",
    ),
    Mutant(
        "a cut list of keys is taken for an answer to the round",
        "cape/protocol/zero_sum.py",
        "if any(len(each) != n_sites for each in shown):", "if n_sites < 0:",
        PROTOCOL + "test_pinned.py"
        "::test_a_list_that_was_cut_is_refused_before_the_round_is_written_down",
    ),
    Mutant(
        "a cut list of signatures is taken for an answer to the round",
        "cape/protocol/zero_sum.py",
        "if len(shown.signatures) != wanted:", "if len(shown.signatures) > wanted:",
        PROTOCOL + "test_pinned.py"
        "::test_a_list_that_was_cut_is_refused_before_the_round_is_written_down",
    ),
    Mutant(
        "half the noise is drawn",
        "cape/protocol/secure_sum.py", "discrete_gaussian(event.variance, query.size, entropy)",
        "discrete_gaussian(event.variance // 2, query.size, entropy)",
        STATISTICAL + "test_auditor.py::test_the_honest_sites_noise_has_the_planned_variance",
    ),
    Mutant(
        "twice the noise is drawn",
        "cape/protocol/secure_sum.py", "discrete_gaussian(event.variance, query.size, entropy)",
        "discrete_gaussian(event.variance * 2, query.size, entropy)",
        STATISTICAL + "test_auditor.py::test_the_honest_sites_noise_has_the_planned_variance",
    ),
    Mutant(
        "one site adds no noise",
        "cape/protocol/secure_sum.py",
        "        if event.private:\n            entropy = noise_stream",
        '        if event.private and site.id != "local1":\n            entropy = noise_stream',
        STATISTICAL + "test_auditor.py"
        "::test_an_integer_secure_sum_gives_the_claimed_mu_and_no_more",
    ),
    Mutant(
        "subjects are clipped to three times the planned norm",
        "cape/protocol/secure_sum.py",
        "clip_int=event.clip_int, shape", "clip_int=3 * event.clip_int, shape",
        STATISTICAL + "test_auditor.py"
        "::test_an_integer_secure_sum_gives_the_claimed_mu_and_no_more",
    ),
    Mutant(
        "a vector leaves without its mask",
        "cape/protocol/zero_sum.py",
        "noisy.view(np.uint64) + keys.zero_sum_mask(pairs, label)",
        "noisy.view(np.uint64) + 0 * keys.zero_sum_mask(pairs, label)",
        "test/audit/test_wire_audit.py"
        "::test_masked_words_are_uniform_and_two_runs_on_equal_data_share_none",
    ),
    Mutant(
        "a run that cannot travel begins",
        "cape/protocol/join.py", "    check_weight(weight_of(", "    print(weight_of(",
        PROTOCOL + "test_many_sites.py"
        "::test_what_cannot_travel_is_refused_by_the_budget_and_in_join",
    ),
    Mutant(
        "a list is signed that leaves a survivor without neighbours",
        "cape/secagg/stages.py", "if alone := isolated(survivors, setup.wiring, setup.plan):",
        "if not (alone := survivors):",
        PROTOCOL + "test_many_sites.py"
        "::test_a_list_that_leaves_a_survivor_alone_is_signed_by_nobody",
    ),
    Mutant(
        "a site may choose its part of the graph when it knows the others'",
        "cape/secagg/stages.py", "if commit_part(entry.opening) != setup.commitments.get(site):",
        "if not entry.opening:",
        PROTOCOL + "test_many_sites.py::test_nobody_chooses_a_graph_once_the_parts_are_known",
    ),
    Mutant(
        "a part of the graph may be left out",
        "cape/secagg/stages.py", "if advertised.keys() != setup.sizes.keys():",
        "if not advertised:",
        PROTOCOL + "test_many_sites.py"
        "::test_a_site_that_falls_silent_before_its_part_is_known_ends_the_run",
    ),
    Mutant(
        "the graph is a ring of nearest neighbours",
        "cape/secagg/graph.py", "+ 1), key=rank)[: k // 2])", "+ 1))[: k // 2])",
        PROTOCOL + "test_many_sites.py::test_the_graph_keeps_its_promises_by_exact_counts",
    ),
    Mutant(
        "colluding neighbours are counted for one site, not for all",
        "cape/secagg/graph.py", "if n_sites * tail << log2 >= every:",
        "if tail << log2 >= every:",
        PROTOCOL + "test_many_sites.py::test_the_graph_keeps_its_promises_by_exact_counts",
    ),
    Mutant(
        "sealed shares of all sites become part of the model",
        "cape/protocol/phases.py", "    return replace(body, addressed={})  # type",
        "    return body  # type",
        PROTOCOL + "test_many_sites.py::test_a_site_needs_nothing_of_what_others_are_sent",
    ),
    Mutant(
        "signatures over the key roster are looked at by nobody",
        "cape/protocol/zero_sum.py", "signed=not signs(site.config),", "signed=True,",
        PROTOCOL + "test_pinned.py"
        "::test_sites_that_saw_different_rosters_are_told_apart_before_a_release",
    ),
    Mutant(
        "what stays inside a message does not follow from the number of sites",
        "cape/coinstac/documents.py", "wire.ALL_INLINE // senders", "wire.ALL_INLINE",
        PROTOCOL + "test_transfer.py"
        "::test_what_stays_inside_a_message_follows_from_the_number_of_sites",
    ),
    Mutant(
        "the aggregator holds the vectors of all sites",
        "cape/coinstac/computation.py", "answer = combine_replies(request, arriving)",
        "answer = combine_replies(request, list(arriving))",
        PROTOCOL + "test_transfer.py"
        "::test_the_aggregator_reads_the_files_of_sites_one_after_the_other",
    ),
    Mutant(
        "masks do not depend on the broadcast that is answered",
        "cape/protocol/zero_sum.py", "        transcript=site.transcript,\n",
        "        transcript=bytes(32),\n",
        PROTOCOL + "test_engine.py"
        "::test_sites_that_were_told_different_things_give_a_sum_of_noise",
    ),
    Mutant(
        "a forged fingerprint of the keys is shown to people",
        "cape/protocol/zero_sum.py", "if shown.fingerprint != keys.roster_fingerprint(digest):",
        "if not shown.fingerprint:",
        PROTOCOL + "test_engine.py"
        "::test_a_forged_fingerprint_of_the_keys_is_refused_by_every_site",
    ),
    Mutant(
        "noise does not depend on the question",
        "cape/protocol/secure_sum.py", 'stream("noise", transcript, line, exact)',
        'stream("noise", line, exact)',
        THIEF + "::test_another_sum_under_the_same_question_has_other_noise",
    ),
    Mutant(
        "noise does not depend on the line of the plan",
        "cape/protocol/secure_sum.py", 'stream("noise", transcript, line, exact)',
        'stream("noise", transcript, exact)',
        THIEF + "::test_another_sum_under_the_same_question_has_other_noise",
    ),
    Mutant(
        "noise does not depend on the sum that it hides",
        "cape/protocol/secure_sum.py", 'stream("noise", transcript, line, exact)',
        'stream("noise", transcript, line)',
        THIEF + "::test_another_sum_under_the_same_question_has_other_noise",
    ),
    Mutant(
        "noise is drawn afresh whenever it is asked for",
        "cape/site/context.py", "return noise_of(self.policy, self.store.secret(RUN_SECRET))",
        "return noise_of(self.policy, new_secret(self.policy, self.id))",
        THIEF + "::test_200_restores_of_a_release_give_one_answer_and_one_charge",
    ),
    Mutant(
        "the secret of an earlier run serves again after join",
        "cape/protocol/join.py", 'site.noise.stream("nonce").token_bytes(CARD_NONCE_BYTES)',
        "site.id.encode().ljust(CARD_NONCE_BYTES)",
        THIEF + "::test_join_asked_again_is_another_run",
    ),
    Mutant(
        "a transcript forgets all broadcasts but the last",
        "cape/protocol/phases.py", "hashlib.sha256(head + run.transcript + body_digest)",
        "hashlib.sha256(head + body_digest)",
        THIEF + "::test_one_last_broadcast_after_two_histories_has_two_masks",
    ),
    Mutant(
        "what people read makes another question",
        "cape/protocol/phases.py",
        "transcript=told(run, cursor, party.digest(body)),",
        "transcript=told(run, cursor, repr(request.progress).encode()),",
        PROTOCOL + "test_engine.py::test_what_only_people_read_makes_no_other_question",
    ),
    Mutant(
        "masks of SecureAgg do not depend on the broadcasts",
        "cape/protocol/secagg_stages.py", "        transcript=party.transcript,\n",
        "        transcript=bytes(32),\n",
        THIEF + "::test_another_question_has_another_mask_where_sites_may_drop_out",
    ),
    Mutant(
        "a second sum of Gaussian seeds draws other noise",
        "cape/protocol/secure_sum.py", "self._release.noisy_sum(site, model, question)",
        "self._release.noisy_sum(site, model)",
        THIEF + "::test_a_second_sum_of_the_seeds_gives_the_same_vector_less_what_was_said",
    ),
    Mutant(
        "Gaussian seeds do not depend on the question",
        "cape/protocol/secure_sum.py", 'stream("seed", site.transcript, line)',
        'stream("seed", line)',
        THIEF + "::test_gaussian_seeds_and_keys_of_another_question_are_others",
    ),
    Mutant(
        "keys of the ring do not depend on the roster",
        "cape/protocol/zero_sum.py", 'stream("key", site.transcript)', 'stream("key")',
        THIEF + "::test_gaussian_seeds_and_keys_of_another_question_are_others",
    ),
    Mutant(
        "a secret is shared by other polynomials under another list of sites",
        "cape/protocol/secagg_stages.py", 'stream("shares", state.setup.salt)',
        'stream("shares", site.transcript)',
        THIEF + "::test_shares_of_one_secret_lie_on_one_polynomial_whatever_list_is_told",
    ),
    Mutant(
        "a folder that was set back is asked something else",
        "cape/coinstac/site.py",
        "        context.told(state.cursor.seq, state.transcript)\n", "        pass\n",
        THIEF + "::test_the_ledger_of_all_runs_remembers_what_a_folder_that_was_set_back_forgot",
    ),
    Mutant(
        "a round that is done again finds its own secrets",
        "cape/site/store.py", "if found[0] < self.seq)", "if found[0] <= self.seq)",
        UNIT + "test_journal.py"
        "::test_a_round_finds_what_earlier_rounds_left_until_its_answer_is_stored",
    ),
    Mutant(
        "a copied folder seals two texts under one nonce",
        "cape/site/store.py",
        "hashlib.blake2b(context + secret, key", "hashlib.blake2b(context, key",
        UNIT + "test_journal.py"
        "::test_equal_secrets_are_sealed_equally_and_no_nonce_serves_two_texts",
    ),
    Mutant(
        "seeds of Gaussian zero-sum noise serve twice",
        "cape/protocol/secure_sum.py", '        site.keep(SEED, b"")\n', "",
        PROTOCOL + "test_gaussian_zero_sum.py::test_the_zero_sum_noise_of_two_rounds_differs",
    ),
    Mutant(
        "noise is planned for all sites, colluders included",
        "cape/protocol/plan.py", "config.survivors(n_sites) - config.colluders(n_sites)",
        "config.survivors(n_sites)",
        UNIT + "test_plan.py"
        "::test_noise_is_calibrated_for_the_shares_that_nobody_can_subtract",
    ),
    Mutant(
        "with noise=local a site counts on the noise of others",
        "cape/protocol/plan.py", 'return 1 if config.noise == "local" else config', "return config",
        PROTOCOL + "test_local_noise.py::test_the_charge_of_a_site_does_not_count_on_the_others",
    ),
    Mutant(
        "a delta that gives one person away gets a plan",
        "cape/protocol/plan.py", "        check_delta(config.delta, n_subjects=n_subjects)\n", "",
        UNIT + "test_plan.py"
        "::test_a_delta_that_gives_one_person_away_has_no_plan_in_any_computation",
    ),
    Mutant(
        "a site computes with arrays of any form",
        "cape/protocol/phases.py", "    phase.check(run.model, request.body)\n", "",
        PROTOCOL + "test_broadcasts.py"
        "::test_a_broadcast_whose_arrays_have_another_form_is_refused_by_every_site",
    ),
    Mutant(
        "an array with an axis more has the same form",
        "cape/protocol/secure_sum.py",
        "itertools.zip_longest(one.shape, other.shape, fillvalue=-1)",
        "zip(one.shape[::-1], other.shape[::-1])",
        PROTOCOL + "test_broadcasts.py"
        "::test_a_broadcast_whose_arrays_have_another_form_is_refused_by_every_site",
    ),
    Mutant(
        "a subject may give several answers to one question",
        "cape/protocol/secure_sum.py",
        "if answers.shape != (len(stack), query.size):", "if answers.shape[1] != query.size:",
        PROTOCOL + "test_broadcasts.py"
        "::test_one_subject_cannot_be_multiplied_by_what_is_computed_from_broadcasts",
    ),
    Mutant(
        "a subject may be asked twice in one release",
        "cape/protocol/secure_sum.py",
        "if sum(len(array) for array in kept(subjects).arrays) != n_subjects:",
        "if sum(len(array) for array in kept(subjects).arrays) < n_subjects:",
        PROTOCOL + "test_broadcasts.py"
        "::test_a_site_that_would_ask_a_subject_twice_releases_nothing",
    ),
    Mutant(
        "the aggregator says how many features the data have",
        "cape/site/context.py", "return wire.digest(space.outline()).hex()",
        "return space.digest",
        PROTOCOL + "test_broadcasts.py"
        "::test_a_roster_with_another_number_of_features_than_the_data_is_refused",
    ),
    Mutant(
        "pinned keys may be replaced during a run",
        "cape/site/identity.py", "        if self.digest and self.digest_now() != self.digest:\n",
        "        if not self.digest:\n",
        PROTOCOL + "test_broadcasts.py"
        "::test_pinned_keys_are_those_that_a_site_had_before_the_aggregator_sent_anything",
    ),
    Mutant(
        "whole lines of a ledger may vanish",
        "cape/site/ledger_file.py",
        "    if hashlib.sha256(last).hexdigest() != digest:\n", "    if not digest:\n",
        UNIT + "test_ledger_file.py::test_whole_lines_that_are_gone_are_noticed",
    ),
    Mutant(
        "a mistake in a policy is told to everybody",
        "cape/site/policy.py",
        "load_policy(own)\n    except ConfigError as err:\n        raise unusable_policy",
        "load_policy(own)\n    except ConfigError as err:\n        raise err or unusable_policy",
        "test/e2e/test_drivers.py::test_a_policy_that_cannot_be_read_stops_the_site",
    ),
    Mutant(
        "a site takes whatever size of the basis the aggregator says",
        "cape/protocol/plan.py", "if roster.n_basis != n_basis or too_large:", "if too_large:",
        PROTOCOL + "test_conformance.py"
        "::test_f_a_site_takes_no_other_size_of_the_basis_from_the_aggregator",
    ),
    Mutant(
        "a site does not check the noise that the plan counts on",
        "cape/protocol/plan.py", "if event.shares != noise_shares_of(config, roster.n_sites):",
        "if event.shares < 0:",
        UNIT + "test_plan.py::test_a_site_refuses_a_plan_that_is_not_its_own",
    ),
    Mutant(
        "a seeded run is labelled private",
        "cape/protocol/report_phase.py", "private = party.config.private and not roster.seeded",
        "private = party.config.private",
        PROTOCOL + "test_conformance.py::test_f_only_real_noise_is_stamped_as_private",
    ),
    Mutant(
        "any phase may open",
        "cape/protocol/phases.py",
        "    if name not in run.phase.then:\n", "    if name not in run.bound.phases:\n",
        PROTOCOL + "test_engine.py::test_g3_a_phase_outside_then_is_refused_and_nothing_changes",
    ),
    Mutant(
        "exchanges may be skipped",
        "cape/protocol/phases.py", "    if request.seq != run.cursor.seq + 1:\n",
        "    if request.seq < run.cursor.seq + 1:\n",
        PROTOCOL + "test_engine.py::test_g5_seq_grows_by_exactly_one",
    ),
    Mutant(
        "a message of other settings is accepted",
        "cape/protocol/phases.py",
        '        ("settings digest", request.config, run.bound.digest),\n', "",
        PROTOCOL + "test_engine.py::test_g4_a_site_checks_the_same_of_every_broadcast",
    ),
    Mutant(
        "a missing site gives a smaller sum",
        "cape/protocol/phases.py",
        "if lost and len(asked & present) < attendance.least:", "if not asked:",
        PROTOCOL + "test_engine.py"
        "::test_g14_a_missing_or_new_site_is_an_error_never_a_smaller_sum",
    ),
    Mutant(
        "another request for an answered round gets the old answer",
        "cape/site/store.py",
        "        if receipt.request != request:\n", "        if not receipt.request:\n",
        UNIT + "test_journal.py"
        "::test_a_stored_answer_is_returned_and_another_request_refused",
    ),
    Mutant(
        "an older cache than the receipt is answered anew",
        "cape/site/store.py", "        if receipt.seq == seq - 1:\n",
        "        if receipt.seq != seq:\n",
        UNIT + "test_journal.py::test_a_cache_older_or_newer_than_the_receipt_is_lost_state",
    ),
    Mutant(
        "a stored answer is forgotten and drawn again",
        "cape/coinstac/site.py", "    if stored is not None:\n        _log(",
        "    if stored == 0:\n        _log(",
        PROTOCOL + "test_engine.py"
        "::test_g6_an_answered_round_asked_again_returns_the_stored_bytes",
    ),
    Mutant(
        "the vault key is stored beside the vault",
        "cape/coinstac/site.py", 'digest, _with_key(answer, b""))', "digest, answer)",
        PROTOCOL + "test_engine.py"
        "::test_g13_the_vault_key_and_the_vault_never_lie_in_one_folder",
    ),
    Mutant(
        "working arrays that were found whole once are never summed up again",
        "cape/site/store.py", "is_checked = _content(seen) == this", "is_checked = seen.exists()",
        "test/unit/test_parties.py"
        "::test_a_side_file_that_was_found_whole_is_summed_up_again_once_it_changed",
    ),
    Mutant(
        "working arrays are believed within a tick of their writing",
        "cape/site/store.py", " and _is_settled(found):", ":",
        "test/unit/test_parties.py"
        "::test_a_side_file_that_was_written_just_now_is_not_taken_as_it_is",
    ),
    Mutant(
        "what a link in place of the journal leads to is cleared",
        "cape/site/store.py",
        "        if self._root.is_symlink():\n", "        if False:\n",
        "test/adversary/test_neighbour.py::test_links_that_somebody_planted_are_not_followed",
    ),
    Mutant(
        "pair keys of another roster make a mask",
        "cape/protocol/zero_sum.py",
        "if len(agreed.pairs) != n * len(others):", "if False:",
        PROTOCOL + "test_engine.py::test_g13_keys_of_another_roster_make_no_mask",
    ),
    Mutant(
        "an axis of any length is smoothed by a matrix",
        "cape/data/images.py",
        "if max(*shape, *grid.shape) > LONGEST_AXIS:", "if False:",
        UNIT + "test_data_parallel_axes.py"
        "::test_an_axis_too_long_for_a_matrix_takes_the_general_form",
    ),
    Mutant(
        "working arrays that cannot be mapped are lost",
        "cape/site/store.py",
        "with contextlib.suppress(OSError):  # some", "with contextlib.nullcontext():  # some",
        "test/unit/test_parties.py::test_a_side_file_is_read_where_it_cannot_be_mapped",
    ),
    Mutant(
        "working arrays lie anywhere in their file",
        "cape/site/store.py", "from cape.algorithms.estimators import ALIGNED\n", "ALIGNED = 1\n",
        "test/unit/test_parties.py::test_a_side_file_is_summed_up_once_and_never_copied",
    ),
    Mutant(
        "the end of a run clears its files in any order",
        "cape/site/store.py", "            (self._root / RECEIPT).unlink(missing_ok=True)\n", "",
        "test/e2e/test_drivers.py::test_a_site_killed_while_it_clears_its_files_is_asked_again",
    ),
    Mutant(
        "working files stay after a run",
        "cape/coinstac/site.py",
        "    store.forget_arrays()\n    store.clear()\n", "    store.clear()\n",
        "test/e2e/test_drivers.py::test_nothing_stays_in_the_working_folder_after_a_run",
    ),
    Mutant(
        "a resident process answers for a program that was replaced",
        "cape/coinstac/resident.py", "if _on_disk() != program:", "if False:",
        "test/e2e/test_resident.py"
        "::test_a_program_that_was_replaced_is_not_answered_by_the_old_one",
    ),
    Mutant(
        "a resident process answers with the variables that it was started with",
        "cape/coinstac/resident.py", "        os.environb[key] = value\n", "        del value\n",
        "test/e2e/test_resident.py"
        "::test_a_call_sees_the_policy_and_the_folder_of_its_caller",
    ),
    Mutant(
        "a document goes to a socket that others may have put there",
        "cape/coinstac/resident.py",
        "found.st_uid == os.geteuid() and not found.st_mode & 0o77", "True",
        "test/e2e/test_resident.py::test_who_listens_elsewhere_gets_no_document",
    ),
    Mutant(
        "a round of another number of BLAS threads is answered by a resident process",
        "cape/coinstac/resident.py", "if _unpacked(theirs) != facts or", "if",
        "test/e2e/test_resident.py::test_what_a_fork_cannot_take_over_is_turned_down",
    ),
    Mutant(
        "working files of other data are summed",
        "cape/site/store.py", "if (head.key, head.contents) != (key, contents):",
        "if head.key != key:",
        UNIT + "test_parties.py::test_side_files_made_of_other_data_are_lost",
    ),
    Mutant(
        "an error names the folder of the data",
        "cape/site/site_data.py", 'raise DataError("E161", site=self._site,',
        'raise DataError("E161", site=str(self._base),',
        "test/audit/test_wire_audit.py::test_a_run_that_fails_tells_nothing_either[capedjica]",
    ),
    Mutant(
        "a policy that is read again may allow more",
        "cape/site/policy.py", '(mine or theirs) if name == "veto" else (mine and theirs)',
        '(mine and theirs) if name == "veto" else (mine and theirs)',
        UNIT + "test_policy.py::test_a_policy_that_is_read_again_may_only_forbid_more",
    ),
    Mutant(
        "a site's own limit of epsilon is not asked",
        "cape/site/policy.py", "if 0 < self.max_epsilon < config.epsilon:",
        "if 0 < self.max_epsilon < config.delta:",
        UNIT + "test_policy.py"
        "::test_settings_that_a_site_does_not_allow_are_refused_by_name",
    ),
    Mutant(
        "a mapped policy replaces the one that the environment names",
        "cape/site/policy.py", "    own = policy_path(base, given)\n",
        "    own = mapped or policy_path(base, given)\n",
        "test/e2e/test_drivers.py"
        "::test_a_mapped_policy_does_not_replace_the_one_that_the_environment_names",
    ),
    Mutant(
        "a mapped policy names the seed of the noise",
        "cape/site/policy.py", "for name in FIXED:\n            if values.get(",
        "for name in FIXED[1:]:\n            if values.get(",
        UNIT + "test_policy.py::test_a_mapped_policy_names_no_other_seed_data_set_or_ledger",
    ),
    Mutant(
        "a policy beside files in a folder below is passed over",
        "cape/coinstac/site.py", '    inputs["beside"] = policies_below(request.base)\n', "",
        "test/e2e/test_shipped_policy.py"
        "::test_a_policy_that_lies_beside_the_files_that_are_read_is_never_ignored",
    ),
    Mutant(
        "policies in folders below are read in the first round only",
        "cape/site/store.py", '"policy", "beside", "contents")', '"policy", "contents")',
        "test/e2e/test_shipped_policy.py"
        "::test_a_policy_that_lies_beside_the_files_that_are_read_is_never_ignored",
    ),
    Mutant(
        "the page of a site does not say what hung on whom it met first",
        "cape/report/private_folder.py",
        "        epsilon_if_invented=site.epsilon_if_invented,\n", "",
        UNIT + "test_report_site.py"
        "::test_the_page_says_whom_the_site_met_first_and_what_hung_on_them",
    ),
    Mutant(
        "a veto is ignored",
        "cape/site/policy.py",
        "        if self.veto:\n", "        if self.veto and not self.max_sites:\n",
        UNIT + "test_policy.py"
        "::test_settings_that_a_site_does_not_allow_are_refused_by_name",
    ),
    Mutant(
        "the shipped policy has no limit of epsilon",
        "cape/site/policy.py", "    max_epsilon: float = 8.0\n", "    max_epsilon: float = 0.0\n",
        UNIT + "test_policy.py"
        "::test_a_plan_above_the_shipped_policy_is_refused_by_the_name_of_its_line",
    ),
    Mutant(
        "no site assumes a colluder by itself",
        "cape/site/policy.py", "min(self.min_assumed_colluders, n_sites - 1) if n_sites else 0",
        "self.min_assumed_colluders if self.min_assumed_colluders > 1 else 0",
        UNIT + "test_policy.py"
        "::test_a_plan_above_the_shipped_policy_is_refused_by_the_name_of_its_line",
    ),
    Mutant(
        "noise=local needs nobody's consent",
        "cape/site/policy.py", 'config.noise == "local" and not self.allow_local_noise',
        'config.noise == "local" and self.veto',
        UNIT + "test_policy.py"
        "::test_a_plan_above_the_shipped_policy_is_refused_by_the_name_of_its_line",
    ),
    Mutant(
        "no ledger of all runs is kept that nobody asked for",
        "cape/site/ledger_file.py", "or not (policy.ledger_file or home):",
        "or not policy.ledger_file:",
        "test/e2e/test_shipped_policy.py"
        "::test_runs_add_up_over_output_folders_until_the_shipped_total_refuses",
    ),
    Mutant(
        "a policy that only lies beside the data allows what it says",
        "cape/site/policy.py", "        return policy.with_mapped(site, _parsed(path))\n",
        "        return SitePolicy.from_mapping(_parsed(path))\n",
        "test/e2e/test_shipped_policy.py"
        "::test_a_policy_that_only_lies_beside_the_data_forbids_and_never_allows",
    ),
    Mutant(
        "a policy beside the data is passed over",
        "cape/site/policy.py", "and os.path.lexists(base / name):",
        "and not os.path.lexists(base / name):",
        "test/e2e/test_shipped_policy.py"
        "::test_a_policy_that_only_lies_beside_the_data_forbids_and_never_allows",
    ),
    Mutant(
        "a policy among the mapped data is not the site's own",
        "cape/site/policy.py", "names = [n for n in listed if _is_policy(n)]",
        "names = [n for n in listed if not n]",
        "test/e2e/test_shipped_policy.py"
        "::test_a_plan_above_the_shipped_policy_is_refused_and_one_line_raises_it",
    ),
    # -- the ledger of all runs
    Mutant(
        "a ledger that went back in time under a run goes on",
        "cape/site/ledger_file.py",
        "if not {_charge_of(line) for line in earlier} <= set(run.charges):",
        "if {_charge_of(line) for line in earlier}.issubset(()) and earlier:",
        "test/e2e/test_shipped_policy.py"
        "::test_a_home_that_went_back_in_time_during_a_run_stops_the_site",
    ),
    Mutant(
        "the limit over all runs is not asked before a release",
        "cape/site/ledger_file.py",
        "if self.max_total_epsilon and not spending.of(after).within(self.max_total_epsilon):",
        "if self.max_total_epsilon and not spending.of(run).within(self.max_total_epsilon):",
        UNIT + "test_ledger_file.py::test_the_limit_over_all_runs_is_never_passed",
    ),
    Mutant(
        "the plan of a run is compared with the limit as if it were the only one",
        "cape/site/ledger_file.py", "others = self._spending().of(run, others_only=True)",
        "others = Spending().of(run, others_only=True)",
        UNIT + "test_ledger_file.py"
        "::test_a_run_that_cannot_fit_is_refused_before_it_begins",
    ),
    Mutant(
        "charges of a run are not written into the ledger of all runs",
        "cape/site/context.py", "            if not self._all_runs.file.charge(",
        "            if not self._all_runs and not self._all_runs.file.charge(",
        UNIT + "test_parties.py"
        "::test_every_charge_of_a_run_is_one_in_the_ledger_of_all_runs",
    ),
    Mutant(
        "the ledger of all runs is written without its lock",
        "cape/site/store.py", "        _take(handle, party, PATIENCE)\n", "",
        UNIT + "test_ledger_file.py::test_a_second_writer_of_a_ledger_waits_for_the_first",
    ),
    Mutant(
        "a person is known by files only",
        "cape/site/ledger_file.py",
        "digests.add(hmac.new(key, name, hashlib.sha256).hexdigest()[:DIGITS])", "pass",
        UNIT + "test_ledger_file.py"
        "::test_other_files_of_the_same_name_are_the_same_person",
    ),
    Mutant(
        "runs on different files of a person are not joined by a third",
        "cape/privacy/spending.py", "above[top(digest)] = top(digests[0])", "pass",
        UNIT + "test_ledger_file.py"
        "::test_a_person_is_found_again_through_runs_on_other_files_of_hers",
    ),
    Mutant(
        "a ledger goes on with another key for names",
        "cape/site/ledger_file.py",
        "if len(key) < 32 or used - {fingerprint}:", "if len(key) < 32:",
        UNIT + "test_ledger_file.py"
        "::test_without_the_key_of_its_names_a_ledger_does_not_go_on",
    ),
    Mutant(
        "a run that another site seeds counts as one with real noise",
        "cape/site/ledger_file.py", "if run is not None and run.promised:", "if run is None:",
        UNIT + "test_ledger_file.py::test_a_run_that_another_site_seeds_costs_infinity",
    ),
    Mutant(
        "two processes of one site work at the same time",
        "cape/site/store.py",
        "    except (BlockingIOError, PermissionError):\n        return False\n",
        "    except (BlockingIOError, PermissionError):\n        return True\n",
        UNIT + "test_journal.py::test_a_folder_is_held_by_one_process_at_a_time",
    ),
    Mutant(
        "a site does not hold its folder while it answers",
        "cape/coinstac/computation.py", "with folder_lock(request.output, request.who):",
        "with folder_lock(request.output.parent, request.who):",
        "test/faults/test_faults.py::test_a_fault_has_its_declared_outcome[folder-held]",
    ),
    Mutant(
        "FLARE carries what an exception says",
        "cape/flare/rounds.py", "answer = Answer(error=public_text(err))",
        "answer = Answer(error=str(err))",
        FLARE + "test_nothing_but_a_public_text_leaves_a_site_that_fails",
    ),
    Mutant(
        "a question that comes again meets the cache after its answer",
        "cape/flare/rounds.py", "_cache_of(home, question.iteration - 1)",
        "_cache_of(home, question.iteration)",
        FLARE + "test_a_lost_answer_is_repeated_and_costs_nothing",
    ),
    Mutant(
        "a lost site is asked in the next exchange",
        "cape/flare/rounds.py", "left=tuple(site for site in state.left if site in arrived),",
        "left=state.left,",
        FLARE + "test_with_drop_outs_the_survivors_finish_as_they_do_in_memory",
    ),
    Mutant(
        "the aggregator names a folder of the site",
        "cape/flare/rounds.py",
        "        if not RUN_NAME.fullmatch(run):\n"
        '            raise MessageError("E202", problem="the name of a run is 32 hex digits")\n'
        "        home = Path(own.runs) / run\n",
        "        home = Path(own.runs) / run\n",
        FLARE + "test_a_run_names_no_other_folder",
    ),
    Mutant(
        "a result is written where its name leads",
        "cape/flare/rounds.py", "if len(parts) > 2 or not all(", "if False and not all(",
        FLARE + "test_a_result_names_no_other_folder",
    ),
    Mutant(
        "a file of the site is named by the owner",
        "cape/flare/rounds.py", 'if k not in ("data", "policy")}', 'if k not in ("data",)}',
        FLARE + "test_a_site_takes_no_file_of_its_own_from_the_owners_settings",
    ),
    Mutant(
        "an aggregator that gathers replies holds them all",
        "cape/protocol/messages.py", "replace(other, total=zeros)", "other",
        FLARE + "test_replies_are_summed_as_they_arrive",
    ),
    Mutant(
        "a vector of another length enters the running sum",
        "cape/protocol/messages.py",
        "if self.refused or other.refused or self.total.shape != other.total.shape:",
        "if self.refused or other.refused:",
        FLARE + "test_a_vector_of_another_length_is_named_with_its_site[all-sites]",
    ),
    Mutant(
        "logs of a site leave it",
        "cape/flare/own_file.py", '(wanted, "allow_log_streaming", False),',
        '(wanted, "allow_log_streaming", True),',
        UNIT + "test_flare_job.py"
        "::test_a_site_names_what_its_kit_must_allow_and_writes_it_when_asked",
    ),
    Mutant(
        "links among the mapped files are followed",
        "cape/coinstac/site.py", "stat = path.lstat()", "stat = path.stat()",
        "test/e2e/test_drivers.py::test_links_in_the_folder_of_mapped_files_are_not_followed",
    ),
    # -- who takes part, which nobody may ask a site about
    Mutant(
        "who fails a check is not counted",
        "cape/data/pipeline.py", "        return len(self.listed)\n",
        "        return len(self.subjects)\n",
        OWNER + "test_a_binary_search_for_the_shortest_series_reads_nothing",
    ),
    Mutant(
        "content stops a run, whatever the policy of the site says",
        "cape/data/pipeline.py", "findings = Findings(site, strict=strict)",
        "findings = Findings(site, strict=True)",
        OWNER + "test_a_binary_search_for_the_shortest_series_reads_nothing",
    ),
    Mutant(
        "a run is on record only once its data were read",
        "cape/site/context.py", "        self._look()\n        return self._open_source()\n",
        "        return self._open_source()\n",
        OWNER + "test_runs_side_by_side_are_counted_before_they_read",
    ),
    Mutant(
        "max_refusals of a policy is not looked at",
        "cape/site/context.py",
        'most = self.policy.max_refusals if self.cursor.phase == "join" else 0', "most = 0",
        OWNER + "test_a_site_that_lets_content_stop_a_run_tells_one_sentence_and_not_often",
    ),
    Mutant(
        "a finished run whose end is asked again counts as one that looks at data",
        "cape/coinstac/site.py", "counted=is_join or store.record is not None", "counted=True",
        OWNER + "test_the_end_of_a_finished_run_asked_again_is_not_counted",
    ),
    Mutant(
        "one run more than max_refusals looks at data",
        "cape/site/ledger_file.py", "if 0 < most <= self.refusals(", "if 0 < most < self.refusals(",
        OWNER + "test_a_site_that_lets_content_stop_a_run_tells_one_sentence_and_not_often",
    ),
    Mutant(
        "an exchange that is asked again takes back how it ended before",
        "cape/site/context.py", "        if self._is_first:\n", "        if self._asked:\n",
        OWNER + "test_every_end_of_a_run_that_looked_at_data_counts_until_it_is_answered",
    ),
    Mutant(
        "a run that is asked again counts against itself",
        "cape/site/ledger_file.py", "n.endswith(end) and n != own",
        "n.endswith(end) and bool(own)",
        OWNER + "test_every_end_of_a_run_that_looked_at_data_counts_until_it_is_answered",
    ),
    Mutant(
        "runs that end at a release are not counted",
        "cape/site/context.py", "        self._look()\n        if not isinstance(key, str)",
        "        if not isinstance(key, str)",
        OWNER + "test_a_run_that_ends_at_a_release_counts_and_its_secrets_are_gone",
    ),
    Mutant(
        "a release that the total of all runs refuses is not counted",
        "cape/site/context.py", "lier):\n                raise self._over_total(self._all_runs)",
        "lier):\n                raise self.policy.over_total(self.id)",
        "test/e2e/test_shipped_policy.py"
        "::test_runs_that_joined_before_the_total_was_spent_are_refused_and_counted",
    ),
    Mutant(
        "any number of runs may wait for what others spend",
        "cape/site/context.py", "if 0 < self.policy.max_refusals <= all_runs", "if 0 > all_runs",
        "test/e2e/test_shipped_policy.py"
        "::test_runs_that_joined_before_the_total_was_spent_are_refused_and_counted",
    ),
    Mutant(
        "every run counts as one that did not answer",
        "cape/site/ledger_file.py", "            path.unlink(missing_ok=True)\n\n    def refusals(",
        "            pass\n\n    def refusals(",
        OWNER + "test_runs_side_by_side_are_counted_before_they_read",
    ),
    Mutant(
        "an error that names nobody's data counts",
        "cape/coinstac/site.py", '"code", "") in NOBODYS or', '"code", "") in () or',
        OWNER + "test_what_depends_on_nobodys_data_is_not_counted",
    ),
    Mutant(
        "a site that lets no run begin does not say what is unanswered",
        "cape/site/policy.py", "max_total_epsilon: {unanswered}. Wait", "max_total_epsilon. Wait",
        OWNER + "test_runs_side_by_side_are_counted_before_they_read",
    ),
    Mutant(
        "a list with too few names counts",
        "cape/site/context.py", "            self.told_nothing()\n            raise\n",
        "            raise\n",
        OWNER + "test_what_depends_on_nobodys_data_is_not_counted",
    ),
    Mutant(
        "an answer is taken for sent before there is room for its files",
        "cape/coinstac/site.py", "    output = offload(",
        "    context.answered()\n    output = offload(",
        OWNER + "test_an_answer_that_finds_no_room_counts_until_it_is_sent",
    ),
    Mutant(
        "secrets stay after an end that has no code",
        "cape/coinstac/site.py", "    except Exception:  # MemoryError",
        "    except CapeError:  # MemoryError",
        OWNER + "test_a_run_that_ends_at_a_release_counts_and_its_secrets_are_gone",
    ),
    Mutant(
        "a round of secagg that finds no room has used up what it started from",
        "cape/site/store.py", "        self._sealed.add(name)\n",
        "        self._sealed.add(name)\n        for older, path in self._versions(name):\n"
        "            path.unlink() if older < self.seq else None\n",
        "test/faults/test_faults.py::test_a_fault_has_its_declared_outcome[secagg-disk-full]",
    ),
    Mutant(
        "who fails is not charged in the ledger of all runs",
        "cape/site/site_data.py",
        "for label, digests in zip(data.listed, data.digests, strict=True):",
        "for label, digests in [(s.label, s.digests) for s in data.subjects]:",
        OWNER + "test_who_fails_is_charged_so_thresholds_that_wander_over_runs_pay",
    ),
    Mutant(
        "a filter of BIDS names counts those who have a fitting image",
        "cape/data/discovery.py", 'listed.append(ListedRun(file="", subject=subject))', "pass",
        OWNER + "test_a_filter_of_bids_names_does_not_ask_who_has_which_run",
    ),
    Mutant(
        "a basis that could not be built is taken for the identity",
        "cape/data/pipeline.py", "self._errors[n_features] = err",
        "self._built[n_features] = None",
        UNIT + "test_data_cache.py"
        "::test_a_basis_that_could_not_be_built_is_not_taken_for_the_identity",
    ),
    Mutant(
        "a file that breaks its reader ends the run",
        "cape/data/pipeline.py",
        "except Exception as err:\n                what",
        "except KeyError as err:\n                what",
        OWNER + "test_a_file_that_breaks_the_program_tells_nobody",
    ),
    Mutant(
        "the owner's atlas may be any file of a site",
        "cape/config.py", 'not self.atlas.lower().startswith("atlas")', 'self.atlas == "atlas"',
        OWNER + "test_an_atlas_cannot_be_the_image_of_a_person",
    ),
    Mutant(
        "a copy of somebody counts as another person",
        "cape/data/pipeline.py",
        "if s.label not in twice]", "if s.label]",
        UNIT + "test_data_site.py::test_the_same_scan_compressed_again_is_found_as_a_duplicate",
    ),
    Mutant(
        "copies are looked for before people of other features have left",
        "cape/data/pipeline.py",
        "        space = _leave_odd_out(scan)\n    copies = _leave_copies_out(scan)\n",
        "        copies = _leave_copies_out(scan)\n        space = _leave_odd_out(scan)\n",
        OWNER + "test_who_is_a_copy_is_asked_last_so_one_person_moves_one_contribution",
    ),
    Mutant(
        "what most files look like is told in a private run",
        "cape/site/site_data.py",
        "                check_layout_is_said(scan.listed, self.config)\n", "",
        OWNER + "test_no_file_of_one_person_says_what_the_features_are[features]",
    ),
    Mutant(
        "headers vote where the owner names no columns",
        "cape/data/pipeline.py", "    if names:\n        note_columns(",
        "    names = names or most_columns(shapes)\n    if names:\n        note_columns(",
        OWNER + "test_no_file_of_one_person_says_what_the_features_are[headers]",
    ),
    Mutant(
        "a header that is not the owner's counts",
        "cape/data/pipeline.py", "(names and shape.columns not in ((), names))", "False",
        OWNER + "test_no_file_of_one_person_says_what_the_features_are[headers]",
    ),
    Mutant(
        "who has four runs has four votes on what the features are",
        "cape/data/checks.py", "        first.setdefault(shape.person, shape)\n",
        "        first.setdefault(shape.name, shape)\n",
        UNIT + "test_data_formats.py::test_without_noise_every_person_has_one_vote",
    ),
    Mutant(
        "a simulation makes zeros of a site with another number of features",
        "cape/simulation/simulate.py", '_check_equal("E144", {', '({',
        UNIT + "test_bad_consortium.py"
        "::test_another_number_of_features_at_one_site_names_both",
    ),
    Mutant(
        "a simulation makes zeros of a site with other columns",
        "cape/simulation/simulate.py", '    _check_equal("E250", digests)\n', "",
        UNIT + "test_bad_consortium.py"
        "::test_other_names_of_columns_are_found_within_a_site_and_between_sites",
    ),
    Mutant(
        "a hard link is another file",
        "cape/data/discovery.py", "        if state.st_ino:\n", "        if not state.st_ino:\n",
        UNIT + "test_data_site.py"
        "::test_one_file_under_two_labels_is_found_by_its_place_and_stops_the_site",
    ),
    Mutant(
        "a cell of a table may end its row",
        "cape/delimited.py", "enumerate(ENDS.split(text), start=1)",
        "enumerate(text.splitlines(), start=1)",
        OWNER + "test_a_row_of_a_table_of_records_is_asked_nothing",
    ),
    Mutant(
        "bytes of one row that are no text stop the table",
        "cape/data/tables.py", "delimiter_of(path.name), by_line=True)",
        "delimiter_of(path.name), by_line=False)",
        OWNER + "test_a_row_of_a_table_of_records_is_asked_nothing",
    ),
    Mutant(
        "values of a row become the name of its person",
        "cape/data/tables.py", "            if len(cells) == 1 + len(names):\n",
        "            if cells:\n",
        OWNER + "test_the_name_of_a_person_whose_row_cannot_be_read_is_never_its_values",
    ),
    Mutant(
        "a mistyped list counts as a run that read data",
        "cape/data/pipeline.py", "    scan.findings.raise_if_blocked()\n    before_reading(scan)\n",
        "    before_reading(scan)\n    scan.findings.raise_if_blocked()\n",
        OWNER + "test_a_list_with_a_wrong_name_locks_nobody_out",
    ),
    Mutant(
        "a table of records that ends a run was no question",
        "cape/site/site_data.py", "before_records=opened,", "before_records=lambda: None,",
        OWNER + "test_a_table_of_records_that_ends_a_run_is_a_question_that_counts[too large]",
    ),
    Mutant(
        "one odd file turns all others into transposed ones",
        "cape/data/checks.py", "3 * votes <= 2 * len(people)", "votes < len(people)",
        UNIT + "test_data_formats.py"
        "::test_of_three_files_with_12_features_and_one_with_13_the_one_is_named",
    ),
    # -- the neighbour on the same computer
    Mutant(
        "files about people have the modes that the umask leaves",
        "cape/site/store.py", "path.chmod(0o700 if path.is_dir() else 0o600)", "path.lstat()",
        NEIGHBOUR + "test_no_file_about_people_is_readable_whatever_the_umask",
    ),
    Mutant(
        "a planted link is written through",
        "cape/site/store.py", "    path.unlink(missing_ok=True)\n    handle = os.open(path, "
        "os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o600)",
        "    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)",
        NEIGHBOUR + "test_links_that_somebody_planted_are_not_followed",
    ),
    Mutant(
        "a folder of somebody else's in place of private/ is used",
        "cape/site/store.py", "    if path.is_symlink():\n        path.unlink()\n    path.mkdir(",
        "    path.mkdir(",
        NEIGHBOUR + "test_links_that_somebody_planted_are_not_followed",
    ),
    Mutant(
        "the service believes the names of folders",
        "cape/coinstac/service.py", 'os.path.join(os.path.realpath(text), "")',
        'os.path.join(os.path.abspath(text), "")',
        NEIGHBOUR + "test_the_service_opens_no_folder_outside_its_mounts",
    ),
    Mutant(
        "a folder whose name begins as that of a mount counts as inside",
        "cape/coinstac/service.py", 'there.startswith(os.path.join(mount, ""))',
        "there.startswith(mount)",
        NEIGHBOUR + "test_the_service_opens_no_folder_outside_its_mounts",
    ),
    Mutant(
        "data of the rounds are taken from before they were whitened",
        "cape/computations/capedjica/temporal.py", "(subspace(model).V, U), build)",
        "(subspace(model).V,), build)",
        "test/protocol/test_dither.py::test_rounds_ask_of_whitened_data",
    ),
    Mutant(
        "any token will do",
        "cape/coinstac/service.py",
        'if not token or hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):',
        'if not token or given.startswith("Bearer "):',
        NEIGHBOUR + "test_a_service_with_a_token_answers_nobody_who_lacks_it",
    ),
    # -- bombs and odd files
    Mutant(
        "a packed file may be made into a thousand times its size",
        "cape/arrays.py", "LIKELY_PACKED: Final = 100\n", "LIKELY_PACKED: Final = 1032\n",
        BAD_FILES + "test_a_bad_file_is_named_and_takes_no_memory[npz bomb]",
    ),
    Mutant(
        "pipes, folders and sockets with the name of data are passed over",
        "cape/data/discovery.py", "(path.is_file() or path.is_symlink() or named)",
        "(path.is_file() or path.is_symlink())",
        BAD_FILES + "test_a_bad_file_is_named_and_takes_no_memory[a pipe with the name of data]",
    ),
    Mutant(
        "a site of nobody may take part",
        "cape/protocol/join.py", "if card.n_subjects < 1]:", "if card.n_subjects < -9]:",
        BAD_FILES + "test_a_site_of_nobody_is_refused",
    ),
    Mutant(
        "what a site calls itself is shown as it is",
        "cape/protocol/join.py", 'f"{site} has {_shown(value)}"', 'f"{site} has {value}"',
        BAD_FILES + "test_what_a_site_calls_itself_reaches_no_screen_as_it_is",
    ),
    Mutant(
        "of a key that stands twice the last value counts",
        "cape/config.py", "if len(document) < len(pairs):", "if len(document) > len(pairs):",
        BAD_FILES + "test_a_document_with_a_key_twice_is_none",
    ),
    # -- data: reading
    Mutant(
        "interpolation goes on past the last voxel of an image",
        "cape/data/parallel_axes.py", "    weights[~within] = 0.0\n", "",
        UNIT + "test_data_parallel_axes.py"
        "::test_another_grid_with_parallel_axes_gives_the_bits_of_the_general_form",
    ),
    Mutant(
        "the three matrices take the axes of the mask for those of the image",
        "cape/data/parallel_axes.py", "positions.transpose(np.argsort(along))",
        "positions.reshape(grid.shape)",
        UNIT + "test_data_parallel_axes.py"
        "::test_axes_stored_in_any_order_and_direction_give_the_bits_of_the_general_form",
    ),
    Mutant(
        "interpolation between turned grids goes on past the last voxel of an image",
        "cape/data/turned_axes.py", "        new[self.outside] = 0.0\n", "",
        UNIT + "test_data_parallel_axes.py"
        "::test_what_lies_on_the_last_voxel_is_inside_and_what_lies_behind_is_zero",
    ),
    Mutant(
        "what a Gaussian of a turned grid reaches beyond the mask is not interpolated",
        "cape/data/turned_axes.py", "points += np.array([[old.start] for old in reached]",
        "points += np.array([[old.start] for old in made]",
        UNIT + "test_data_parallel_axes.py::test_a_turned_grid_gives_the_bits_of_the_general_form",
    ),
    Mutant(
        "a volume between turned grids is not smoothed before it becomes coarser",
        "cape/data/turned_axes.py", "    if wide.any():\n", "    if wide.min() > 1e9:\n",
        UNIT + "test_data_parallel_axes.py::test_a_turned_grid_gives_the_bits_of_the_general_form",
    ),
    Mutant(
        "a NaN spreads along the axes of its volume",
        "cape/data/images.py",
        'stored.dtype.kind == "f" and not', 'stored.dtype.kind == "c" and not',
        UNIT + "test_data_parallel_axes.py"
        "::test_a_volume_with_nan_takes_the_general_form",
    ),
    Mutant(
        "an interpolated basis is orthonormal on its nodes, not on the voxels",
        "cape/algorithms/interpolated_basis.py", "np.linalg.cholesky(C.T @ _gram(",
        "np.linalg.cholesky(C.T @ C + 0 * C.T @ _gram(",
        UNIT + "test_algorithms_interpolated_basis.py"
        "::test_it_is_an_orthonormal_basis_of_the_mask_whose_array_is_never_formed",
    ),
    Mutant(
        "a fine mask is reduced by another basis than its maps are drawn with",
        "cape/data/pipeline.py", "return basis.adjoint(values).astype(np.float32)",
        "return (basis.adjoint(values)[::-1]).astype(np.float32)",
        UNIT + "test_data_site.py"
        "::test_a_mask_finer_than_3_mm_is_reduced_as_by_its_basis_without_that_basis_in_memory",
    ),
    Mutant(
        "an image of another template space is resampled to the mask",
        "cape/data/images.py",
        "if here and wanted and not known:", "if here and not wanted and not known:",
        UNIT + "test_data_spaces.py"
        "::test_another_grid_of_the_same_space_is_resampled_and_another_space_refused",
    ),
    Mutant(
        "a space that nobody stated counts as the mask's",
        "cape/data/space.py",
        "return bool(a and b) and (a == b or", "return (a == b or not a or not b or",
        UNIT + "test_data_spaces.py"
        "::test_another_grid_of_the_same_space_is_resampled_and_another_space_refused",
    ),
    Mutant(
        "an entry of the cache that was moved is another subject's data",
        "cape/data/reduced_cache.py", "hashlib.sha256(key.encode() + rest)", "hashlib.sha256(rest)",
        UNIT + "test_data_cache.py::test_a_damaged_entry_is_read_again[other]",
    ),
    Mutant(
        "a cache that others may write is believed",
        "cape/data/reduced_cache.py",
        "and not found.st_mode & 0o077", "and not found.st_mode & 0o000",
        UNIT + "test_data_cache.py"
        "::test_a_folder_that_others_may_write_is_neither_believed_nor_used[group]",
    ),
    Mutant(
        "findings come in the order in which subjects were ready",
        "cape/data/pipeline.py", "waiting.popleft().result()", "waiting.pop().result()",
        UNIT + "test_data_cache.py::test_several_at_a_time_give_what_one_at_a_time_gives[2]",
    ),
    Mutant(
        "a gzip member that is cut off counts as a whole one",
        "cape/data/unpacking.py",
        "                if not self._started:\n                    break\n",
        "                break\n",
        UNIT + "test_data_parallel_axes.py::test_damage_of_every_kind_is_told",
    ),
    Mutant(
        "a run that was not measured is called sure",
        "cape/forecast/temporal.py",
        'return "perhaps" if self.unmeasured and answer == "yes" else answer', "return answer",
        UNIT + "test_forecast_temporal.py"
        "::test_what_was_not_measured_is_never_a_yes_and_noise_is_refused_for_it_too",
    ),
    Mutant(
        "more epsilon is advised whatever it takes",
        "cape/forecast/rule.py",
        "if (epsilon := size.epsilon_for(needed)) <= SIGNABLE:",
        "if (epsilon := size.epsilon_for(needed)) > 0:",
        UNIT + "test_forecast_temporal.py"
        "::test_nobody_is_told_to_raise_epsilon_past_what_a_board_can_sign",
    ),
    Mutant(
        "maps that time courses did not confirm get a name",
        "cape/report/labels.py", "if row.verdict in CONFIRMED", "if row.verdict != 0",
        UNIT + "test_report_labels.py"
        "::test_only_maps_that_their_time_courses_confirmed_get_a_name",
    ),
    Mutant(
        "djica keeps its first rate on full batches",
        "cape/papers/algorithms/djica.py", "    if not bend > 0.0:\n", "    if True:\n",
        UNIT + "test_algorithms_djica.py"
        "::test_the_length_of_a_full_batch_is_the_inverse_curvature_along_the_last_step",
    ),
    Mutant(
        "a preset of Gaussian courses still has amplitudes that separate it",
        "cape/synthetic/presets.py",
        '"gaussian": replace(_REALISTIC, alpha=STATIONARY, heterogeneity=0.0),',
        '"gaussian": replace(_REALISTIC, alpha=STATIONARY),',
        UNIT + "test_synthetic_presets.py"
        "::test_gaussian_courses_of_equal_amplitude_have_nothing_to_separate",
    ),
    Mutant(
        "the rank guard is back in spatial maps",
        "cape/algorithms/spatial.py", "replace(released, V=V, status=\"unguarded\")", "released",
        UNIT + "test_left_right.py::test_exactly_r_maps_come_out_at_every_budget",
    ),
    Mutant(
        "labels of like names are a pair wherever they lie",
        "cape/planning/label_pairs.py", "across(pair[0]) == pair[1] and across(pair[1]) == pair[0]",
        "pair",
        UNIT + "test_label_pairs.py::test_pairs_are_where_the_mirror_image_of_the_other_is",
    ),
    Mutant(
        "of three labels called alike two are a pair",
        "cape/planning/label_pairs.py", "if len(group[\"left\"]) == len(group[\"right\"]) == 1:",
        "if group[\"left\"] and group[\"right\"]:",
        UNIT + "test_label_pairs.py::test_what_is_no_pair_stays_alone",
    ),
    Mutant(
        "letters are sides as words are",
        "cape/planning/label_pairs.py", "for depth in (2, 3):", "for depth in (3,):",
        UNIT + "test_label_pairs.py::test_letters_are_sides_only_where_words_are_not_enough",
    ),
    Mutant(
        "a site mirrors those of its subjects whose data look symmetric",
        "cape/algorithms/spatial.py", "[Y, self.J @ Y]",
        "[Y, self.J @ Y if np.sum(Y * (self.J @ Y)) > 0 else Y]",
        UNIT + "test_left_right.py"
        "::test_subjects_that_are_mirrored_first_have_even_and_odd_directions_only",
    ),
    Mutant(
        "maps are mirrored whatever the left-right test says",
        "cape/computations/capedjica/spatial.py", "== \"auto\" and clear and noise_std > 0",
        "== \"auto\" and noise_std > 0",
        "test/e2e/test_brains.py::test_smooth_noise_is_called_nothing_and_its_maps_have_another_name",
    ),
    Mutant(
        "a spatial run has 20 maps whatever G is",
        "cape/computations/capedjica/settings.py",
        "    most = spatial_components(effective_g(config, n_sites, n_subjects))",
        "    most = N_COMPONENTS",
        UNIT + "test_plan.py::test_without_an_owners_word_r_and_d_follow_from_g",
    ),
    Mutant(
        "the report takes every subject apart once more",
        "cape/algorithms/pca.py", "    within_bound: ClassVar[bool] = True",
        "    within_bound: ClassVar[bool] = False",
        PROTOCOL + "test_separations.py::test_the_report_takes_no_subject_apart_again",
    ),
    Mutant(
        "the free set of a temporal run is not judged",
        "cape/computations/capedjica/free_set.py", "    if mirror is not None:", "    if False:",
        "test/e2e/test_brains.py"
        "::test_a_temporal_run_gives_the_set_of_the_recipe_away_and_shows_it_first",
    ),
    Mutant(
        "surrogates of another subspace are taken from the cache",
        "cape/algorithms/spatial.py", "_surrogates(B.tobytes(), size.tobytes(), k, score)",
        "_surrogates(B.tobytes(), np.ones(d).tobytes(), k, score)",
        UNIT + "test_algorithms_separations.py::test_surrogates_are_turned_once_for_the_same_"
        "subspace_and_are_those_of_the_plain_form",
    ),
    Mutant(
        "voxels without a partner count whole in the left-right test",
        "cape/algorithms/left_right.py", "(U * np.clip(w, -1.0, 1.0))",
        "(U * np.where(w < 0.0, -1.0, 1.0))",
        UNIT + "test_left_right.py::test_voxels_without_a_partner_count_less_in_the_test",
    ),
    Mutant(
        "maps are claimed whatever the left-right test says",
        "cape/computations/capedjica/spatial.py", "if clear and noise_std > 0 else ()",
        "if test is not None else ()",
        "test/e2e/test_brains.py::test_smooth_noise_is_called_nothing_and_its_maps_have_another_name",
    ),
    Mutant(
        "the global signal stays in the data",
        "cape/data/cleaning.py", "    if how.global_signal:\n", "    if False:\n",
        UNIT + "test_data_preprocessing.py"
        "::test_the_global_signal_is_that_of_scaled_features_and_brings_nothing_back",
    ),
    Mutant(
        "a long run is cleaned in blocks of gigabytes",
        "cape/data/cleaning.py", "    return min(4096, max(1, BLOCK // max(n_times, 1)))",
        "    return 4096",
        UNIT + "test_bad_files.py::test_a_bad_file_is_named_and_takes_no_memory",
    ),
    # -- what people read of a result
    Mutant(
        "noise is said before the run only",
        "cape/api.py", "screen.\n        if noise:", "screen.\n        if not noise:",
        UNIT + "test_python.py"
        "::test_noise_is_announced_before_a_run_and_again_beside_its_maps",
    ),
    Mutant(
        "a comparison tells of the first noise only",
        "cape/comparison.py", 'simplefilter("ignore", SubjectsWarning)', 'simplefilter("ignore")',
        UNIT + "test_python.py::test_a_comparison_keeps_no_noise_to_itself",
    ),
    Mutant(
        "a run without noise is what an estimator does if nobody says epsilon",
        "cape/estimator.py", "private=None if self.private else False,",
        "private=None if self.private and self.epsilon else False,",
        UNIT + "test_python.py::test_no_epsilon_means_the_same_everywhere",
    ),
    Mutant(
        "the bar of a second run goes on in the cell of the first",
        "cape/progress_bar.py", "if done <= 1 or self._shown is None:",
        "if self._shown is None:",
        UNIT + "test_python.py"
        "::test_a_bar_in_a_notebook_is_drawn_once_in_each_cell_and_written_over",
    ),
    Mutant(
        "a release tries its clone and calls it the wheel",
        "packaging/check_release.py", 'if k != "PYTHONPATH"}', "}",
        UNIT + "test_supply.py::test_the_wheel_is_tried_and_not_the_clone_it_was_built_from",
    ),
    Mutant(
        "a match of chance is a name",
        "cape/report/labels.py", "self.label if abs(self.r) > self.chance else None", "self.label",
        UNIT + "test_report_labels.py::test_what_is_not_above_chance_has_a_name_in_no_table",
    ),
    Mutant(
        "the anatomy cuts voxels at the edge of a mask off",
        "cape/report/brain.py", "sum(axis=1) / 2.0 + EVERY", "sum(axis=1) * 0.0 - EVERY",
        UNIT + "test_report_brain.py"
        "::test_no_edge_of_a_coarse_mask_is_cut_off_by_the_anatomy[10]",
    ),
    Mutant(
        "a map is cut where nothing is",
        "cape/report/brain.py", "k = int(np.abs(points - place[normal]).argmin())",
        "k = points.size // 2",
        UNIT + "test_report_brain.py::test_every_map_is_cut_through_its_peak_and_left_is_left",
    ),
    Mutant(
        "a grid that is stored from right to left is drawn as it is stored",
        "cape/report/brain.py", "inverse = np.linalg.inv(affine)",
        "inverse = np.linalg.inv(np.abs(affine))",
        UNIT + "test_report_brain.py::test_a_grid_stored_the_other_way_round_is_drawn_the_same",
    ),
    Mutant(
        "a glass brain hides what is negative",
        "cape/report/brain.py", "at = np.abs(values).argmax(axis=normal)",
        "at = values.argmax(axis=normal)",
        UNIT + "test_report_brain.py::test_a_glass_brain_shows_the_strongest_of_either_sign",
    ),
    Mutant(
        "chance takes every map for a rough one",
        "cape/report/labels.py", "        width = _width(column, space)\n", "        width = 0.0\n",
        UNIT + "test_report_labels.py"
        "::test_at_most_1_of_20_random_maps_of_the_same_smoothness_gets_a_name",
    ),
    Mutant(
        "chance forgets that the two sides of a map are the same",
        "cape/report/labels.py", "alike if alike > SAME_ON_BOTH else 0.0", "0.0",
        UNIT + "test_report_labels.py"
        "::test_at_most_1_of_20_random_maps_of_the_same_smoothness_gets_a_name",
    ),
    Mutant(
        "a paper is told of a filter that was not there",
        "cape/report/templates/data_paragraph.txt.j2", "{%- if s.get(\"high_pass\") %}{% set",
        "{%- if true %}{% set",
        UNIT + "test_report_methods.py::test_defaults_and_other_settings_are_said_as_they_are",
    ),
    Mutant(
        "a site's page names maps that the consortium's does not",
        "cape/report/private_folder.py", "or site.outcome_status not in NAMED", "",
        UNIT + "test_report_site.py"
        "::test_connectivity_is_ordered_by_network_and_only_maps_with_a_name_have_one",
    ),
    Mutant(
        "signal to noise is taken after the mean is out",
        "cape/data/cleaning.py", "        means[first : first + rows] = block.mean(axis=1)\n", "",
        UNIT + "test_data_preprocessing.py"
        "::test_the_temporal_signal_to_noise_is_that_before_the_mean_is_taken_out",
    ),
    # -- what is installed and shipped
    Mutant(
        "an array declared by an alias of newer numpy is refused",
        "cape/protocol/wire.py", 'if hasattr(origin, "__value__"):', "if False:",
        UNIT + "test_wire.py"
        "::test_an_array_may_be_declared_by_an_alias_as_newer_numpy_makes_it",
    ),
    Mutant(
        "a process of a round imports what lies in the caller's folder",
        "cape/simulation/transports.py", '[sys.executable, "-P", "-c", PROGRAM',
        '[sys.executable, "-c", PROGRAM',
        UNIT + "test_simulate_places.py"
        "::test_an_installed_package_needs_no_file_of_the_repository",
    ),
    Mutant(
        "digests of what is installed are not checked",
        "Makefile", "install --quiet --require-hashes -r", "install --quiet -r",
        UNIT + "test_supply.py::test_nothing_is_installed_that_is_not_locked",
    ),
    Mutant(
        "the base of the image is a tag, which may move",
        "Dockerfile", "python@sha256:", "python:3.11-slim#",
        UNIT + "test_supply.py::test_the_image_stands_on_a_digest_and_on_nothing_else",
    ),
    Mutant(
        "one licence of several that is allowed is enough",
        "packaging/licences.py", '<= ALLOWED for way', '& ALLOWED for way',
        UNIT + "test_supply.py::test_a_licence_that_asks_for_more_is_not_allowed",
    ),
    Mutant(
        "a build takes the time that its environment sets",
        "packaging/check_release.py", 'if k != "SOURCE_DATE_EPOCH"', 'if k != "SOURCE_DATE"',
        UNIT + "test_supply.py::test_two_builds_are_equal_byte_for_byte",
    ),
    Mutant(
        "a log is readable for everybody",
        "cape/cli/log_file.py", "os.O_APPEND, 0o600)", "os.O_APPEND, 0o644)",
        UNIT + "test_cli.py::test_a_log_has_all_that_was_printed_and_is_for_nobody_else",
    ),
    Mutant(
        "what a setting means is glued into its error",
        "cape/config.py", 'f"{kind}, {allowed}")', 'f"{kind}, {allowed}", spec.metadata["help"])',
        UNIT + "test_cli.py::test_no_budget_is_an_error_that_names_its_option",
    ),
    Mutant(
        "the processors are asked for in a way of Linux",
        "cape/data/resources.py", 'if hasattr(os, "sched_getaffinity") else', "if True else",
        "test/e2e/test_portability.py"
        "::test_planning_checking_and_simulating_need_no_posix",
    ),
    Mutant(
        "a form without its computation runs capedjica",
        "cape/coinstac/site.py",
        "    if set(settings) <= fields[PRODUCT] and not set(settings) <= others:\n",
        "    if settings:\n",
        UNIT + "test_compspec.py"
        "::test_a_form_that_does_not_name_its_computation_never_runs_another_one[capecca]",
    ),
    Mutant(
        "a run is charged that NeuroFLAME would cut off, as its sites read long",
        "cape/neuroflame/steps.py", "if spent + seconds > CAP", "if seconds > CAP",
        UNIT + "test_neuroflame.py::test_the_time_in_which_sites_read_their_data_counts",
    ),
    Mutant(
        "NeuroFLAME's hour is said to be over for its exchanges where it was the reading",
        "cape/neuroflame/steps.py", "reading=round(spent / 60),", "reading=0,",
        UNIT + "test_neuroflame.py::test_the_time_in_which_sites_read_their_data_counts",
    ),
    Mutant(
        "NeuroFLAME begins a run with drop-outs",
        "cape/neuroflame/steps.py", "        check_settings(settings)\n", "",
        UNIT + "test_neuroflame.py::test_drop_outs_are_refused_before_a_site_is_asked",
    ),
    Mutant(
        "a setting is written into a form that has no such input",
        "cape/coinstac/form.py",
        "if field.name in chosen and not has_input(", "if not chosen and (",
        UNIT + "test_coinstac_display.py::test_a_setting_that_the_form_does_not_have_is_refused",
    ),
    Mutant(
        "settings that every computation has run capedjica",
        "cape/coinstac/site.py", " and not set(settings) <= others:", ":",
        UNIT + "test_compspec.py"
        "::test_what_all_computations_have_chooses_none_of_them[capecca]",
    ),
    Mutant(
        "a site in the same process takes the policy of the one before it",
        "cape/flare/rounds.py",
        "            if old is None:\n                os.environ.pop(name, None)\n",
        "            if old is None:\n                pass\n",
        UNIT + "test_flare_rounds.py"
        "::test_sites_of_one_process_take_nothing_of_each_other",
    ),
    Mutant(
        "the application lists a computation by another name",
        "cape/compspec.py", '"name": title,', '"name": list(inputs)[-1],',
        UNIT + "test_compspec.py"
        "::test_every_computation_has_a_compspec_that_chooses_it[capedjica]",
    ),
    Mutant(
        "the form shows what applies to another model",
        "cape/compspec.py", 'widget["conditional"] = ', 'widget.get("conditional"); _ = ',
        UNIT + "test_compspec.py"
        "::test_an_input_is_shown_where_its_condition_can_be_met_and_hidden_by_default[capedjica]",
    ),
    Mutant(
        "the result table shows large numbers with an exponent",
        "cape/coinstac/display.py", 'return f"{value:,}"', "return value",
        UNIT + "test_coinstac_display.py::test_the_summary_is_flat_words_and_numbers[True]",
    ),
    Mutant(
        "a site of NeuroFLAME takes any name that it is given",
        "cape/neuroflame/steps.py", "if nonce == self.nonce]", "if nonce]",
        UNIT + "test_neuroflame.py"
        "::test_a_site_takes_only_the_name_under_which_its_own_nonce_came",
    ),
    Mutant(
        "a plan longer than NeuroFLAME's hour begins",
        "cape/neuroflame/steps.py", "if spent + seconds > CAP_SECONDS:", "if seconds > 1e9:",
        UNIT + "test_neuroflame.py"
        "::test_a_plan_beyond_the_frameworks_hour_is_refused_before_anything_is_charged",
    ),
    Mutant(
        "secrets of a run stay in a temporary folder",
        "cape/neuroflame/steps.py", "_AGGREGATORS.pop(output_dir).close()", "pass",
        UNIT + "test_neuroflame.py"
        "::test_a_run_leaves_the_bytes_that_memory_leaves_and_no_secret",
    ),
)  # fmt: skip
