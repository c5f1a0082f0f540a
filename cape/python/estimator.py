"""`JointICA`: a consortium behind the interface of scikit-learn, for notebooks and pipelines.

A sample is a person, not a row: X is a list of arrays (time points, features), `groups` the site
of each.  Where scikit-learn is installed it is one of its estimators (clone, grid search, tags,
HTML); without it fit and transform work alone.  With a nilearn masker it takes images.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cape.algorithms.estimators import Array
from cape.data.checks import MOST_BAD
from cape.errors import ConfigError
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import component_names
from cape.python.api import Consortium, Result
from cape.simulation.run_loop import OnProgress

if TYPE_CHECKING:
    _Base = object
else:
    try:
        from sklearn.base import BaseEstimator as _Base
    except ImportError:
        _Base = object


class JointICA(_Base):
    """Joint ICA of several sites with differential privacy for every subject.

    Parameters are those of docs/config.md; ``epsilon=None`` is as `settings` say and is refused
    where they say nothing, ``private=False`` asks for a run without noise, which protects nobody.
    With a `random_state`, 0 to 2^63 - 1, the result is not private either.  `computation`:
    capedjica, capegica or capedualreg; None: capegica for images of a `masker`, else capedjica.
    Voxels of a nilearn `masker` are projected on the public basis.

    After the fit: `components_` (n_components, n_features), z-scores of the released maps;
    `unmixing_` of the same shape, which gives time courses of centred data; `mixing_`, its
    pseudo-inverse; `n_features_in_`; `result_`, everything that was released.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> maps = rng.standard_normal((3, 12))
    >>> people = [rng.laplace(size=(60, 3)) @ maps for _ in range(9)]
    >>> model = JointICA(3, private=False, settings={"min_timepoints": 40})
    >>> model.fit(people, groups=["north"] * 3 + ["south"] * 6).components_.shape
    (3, 12)
    """

    def __init__(
        self,
        n_components: int = 0,
        *,
        epsilon: float | None = None,
        delta: float = 1e-5,
        private: bool = True,
        computation: str | None = None,
        masker: Any = None,
        settings: Mapping[str, object] | None = None,
        random_state: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.private = private
        self.computation = computation
        self.masker = masker
        self.settings = settings
        self.random_state = random_state
        self.on_progress = on_progress

    def fit(self, X: Any, y: None = None, *, groups: Iterable[Any] | None = None) -> Self:
        """Run the protocol on people: images for the masker, or arrays (T_m, D).

        X: one entry per person, all of one site or of `groups`, the site of each; or a mapping from
        sites to lists; or one list per site, named site1, site2 ...
        """
        del y  # scikit-learn's pipelines pass it
        # scikit-learn has time points in rows, the protocol features.
        sites = {
            name: [self._array(subject).T for subject in _several(subjects)]
            for name, subjects in _by_site(X, groups).items()
        }
        settings = dict(self.settings or {})
        if self.n_components:
            settings.setdefault("n_components", self.n_components)
        # After the arrays: only a masker that is fitted knows its mask.
        consortium = Consortium(sites, space=self._space())
        self.result_: Result = consortium.run(
            epsilon=self.epsilon,
            delta=self.delta,
            private=None if self.private else False,
            settings=settings,
            computation=self.computation,
            seed=self.random_state,
            on_progress=self.on_progress,
        )
        if self.result_.maps is None or self.result_.unmixing is None:
            raise TypeError("the run ended without maps")
        self.components_: Array = self.result_.maps.T
        self.unmixing_: Array = self.result_.unmixing
        self.mixing_: Array = np.asarray(np.linalg.pinv(self.unmixing_))
        self.n_features_in_: int = self.components_.shape[1]
        return self

    def transform(self, X: Sequence[Any]) -> list[Any]:
        """Return the time courses (T_m, n_components) of people; they are private.

        As in the fit, a few NaN or infinite values count as the mean of their feature.  ConfigError
        CAPE-E284: not fitted, no list of subjects, other features, too many that are not finite.
        """
        container = self._container()
        return [container(_centred(one) @ self.unmixing_.T) for one in self._arrays(X)]

    def fit_transform(self, X: Any, y: None = None, *, groups: Any = None) -> list[Any]:
        """Fit, then transform the people of all sites in the order they came."""
        self.fit(X, y, groups=groups)
        people = X if groups is not None else [x for of in _by_site(X, None).values() for x in of]
        return self.transform(people)

    def inverse_transform(self, X: Sequence[Any]) -> list[Array]:
        """Return what time courses (T_m, n_components) stand for: (T_m, D), centred in time."""
        self._check_fitted("inverse_transform")
        return [np.asarray(one) @ self.mixing_.T for one in _several(X)]

    def score(self, X: Sequence[Any], y: None = None) -> float:
        """Return the share of the variance of people's data that the components explain, to 1.

        It is computed from their data and is private.
        """
        del y
        explained = total = 0.0
        for one in self._arrays(X):
            centred = _centred(one)
            rest = centred - centred @ self.unmixing_.T @ self.mixing_.T
            explained += float(np.sum(centred**2) - np.sum(rest**2))
            total += float(np.sum(centred**2))
        return explained / total if total else 0.0

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the components, as in all files: C01, C02 ..."""
        del input_features
        self._check_fitted("get_feature_names_out")
        return np.asarray(component_names(len(self.components_)), dtype=object)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what `transform` gives for each person: "default" (arrays) or "pandas"."""
        if transform not in (None, "default", "pandas"):
            raise ValueError(f"transform={transform!r}: allowed 'default', 'pandas'")
        if transform is not None:
            # Of this name scikit-learn's `clone` carries it along.
            self._sklearn_output_config = {"transform": transform}
        return self

    def components_image(self) -> Any:
        """Return the maps as a 4-D image; needs a masker."""
        if self.masker is None:
            raise ConfigError("E284", problem="no masker, so no grid", do="give a masker.")
        return self.masker.inverse_transform(self.components_)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import TransformerTags

        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.transformer_tags = TransformerTags()
        # A person is a sample: a two-dimensional array is one person, not a data set.
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    def _container(self) -> Callable[[Array], Any]:
        chosen = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        if chosen == "default":
            return np.asarray
        import pandas as pd

        names = self.get_feature_names_out()
        return lambda courses: pd.DataFrame(courses, columns=names)

    def _check_fitted(self, method: str) -> None:
        if not hasattr(self, "unmixing_"):
            problem = f"JointICA.{method} before JointICA.fit"
            raise ConfigError("E284", problem=problem, do="call fit first.")

    def _arrays(self, X: Sequence[Any]) -> list[Array]:
        self._check_fitted("transform")
        arrays = [self._array(one) for one in _several(X)]
        for wrong in {one.shape[1] for one in arrays} - {self.n_features_in_}:
            problem = f"arrays of {wrong} features, the fit had {self.n_features_in_}"
            raise ConfigError("E284", problem=problem, do="give (time points, features).")
        return arrays

    def _array(self, one: Any) -> Array:
        if self.masker is not None:
            if not hasattr(self.masker, "mask_img_") and not hasattr(self.masker, "labels_img_"):
                self.masker.fit()  # from its own mask image, never from a subject's
            one = self.masker.transform(one)
        array = np.asarray(one)
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            problem = "a subject that is no real array (time points, features)"
            do = "fit takes a list of subjects per site, or of all and groups=; "
            do += "transform a list of subjects."
            raise ConfigError("E284", problem=problem, do=do)
        return array.astype(np.float64)

    def _space(self) -> FeatureSpace | None:
        # Maskers of labels or spheres have no grid that a basis could be made for.
        mask = getattr(self.masker, "mask_img_", None)
        if mask is None or hasattr(self.masker, "labels_img_"):
            return None
        labels = (np.asarray(mask.dataobj) > 0).astype(np.int32)
        from cape.data.space import space_of

        affine = np.asarray(mask.affine, dtype=np.float64)
        return FeatureSpace.of_labels("mask", labels, affine, space_of("", mask.header))


def _by_site(X: Any, groups: Iterable[Any] | None) -> Mapping[str, Any]:
    if isinstance(X, Mapping):
        return X
    people = _several(X)
    if groups is None and any(map(_is_person, people)):
        return {"site1": people}
    if groups is None:
        return {f"site{k}": subjects for k, subjects in enumerate(people, 1)}
    sites = [str(site) for site in groups]
    if len(sites) != len(people):
        problem = f"{len(sites)} groups for {len(people)} people"
        raise ConfigError("E284", problem=problem, do="name the site of every person once.")
    return {
        s: [x for x, of in zip(people, sites, strict=True) if of == s] for s in dict.fromkeys(sites)
    }


def _is_person(x: Any) -> bool:
    """Whether an entry of X is an image or a table of one person, not the people of a site."""
    return isinstance(x, str | os.PathLike) or hasattr(x, "dataobj") or getattr(x, "ndim", 0) == 2


def _several(X: Any) -> Sequence[Any]:
    if isinstance(X, str | os.PathLike) or hasattr(X, "dataobj"):
        raise ConfigError("E284", problem="one image, not a list", do="put it into a list.")
    return list(X)


def _centred(X: Array) -> Array:
    """Return X (T, D) less the means over time; what is not finite counts as the mean."""
    # As the reader of a site does: the fit and the transform see the same series.
    bad = ~np.isfinite(X)
    if X.size == 0 or bad.mean() > MOST_BAD:
        problem = "a subject has no values or too many that are NaN or infinite"
        do = f"leave it out; allowed {100 * MOST_BAD:g} %."
        raise ConfigError("E284", problem=problem, do=do)
    total = np.where(bad, 0.0, X).sum(axis=0)
    return np.where(bad, 0.0, X - total / np.maximum((~bad).sum(axis=0), 1))
