"""`JointICA`: a consortium behind the interface of scikit-learn, for notebooks.

Needs neither scikit-learn nor nilearn; with a nilearn masker it takes images, and
``sklearn.base.clone`` works on it.  As there, arrays are (time points, features).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from cape.algorithms.estimators import Array
from cape.api import Consortium, Result
from cape.data.checks import MOST_BAD
from cape.errors import ConfigError
from cape.protocol.messages import FeatureSpace


class JointICA:
    """Joint ICA of several sites with differential privacy for every subject.

    ``epsilon=None`` runs without noise and protects nobody; with a `random_state` the result is not
    private.  `separation` is temporal, spatial or template.  A nilearn `masker` turns images into
    arrays; voxels of its mask are then projected on the public basis.  `settings` are further ones
    of docs/config.md.

    After the fit: `components_` (n_components, n_features), z-scores of the released maps;
    `unmixing_` of the same shape, which gives time courses of centred data; `result_`, everything
    that was released.
    """

    def __init__(
        self,
        n_components: int = 20,
        *,
        epsilon: float | None = None,
        delta: float = 1e-5,
        separation: str = "temporal",
        masker: Any = None,
        settings: Mapping[str, object] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.separation = separation
        self.masker = masker
        self.settings = settings
        self.random_state = random_state

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        # From the signature, as scikit-learn does, so that `sklearn.base.clone` finds the same.
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        params = {name: getattr(self, name) for name in names}
        if deep and hasattr(self.masker, "get_params"):
            of_masker = self.masker.get_params()
            params |= {f"masker__{name}": value for name, value in of_masker.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        # ``masker__x`` sets x of the masker, as scikit-learn's grid search writes it.
        own_names = list(self.get_params(deep=False))
        for name, value in params.items():
            owner, nested, inner = name.partition("__")
            if nested and owner == "masker" and self.masker is not None:
                self.masker.set_params(**{inner: value})
            elif name in own_names:
                setattr(self, name, value)
            else:
                allowed = ", ".join(own_names)
                raise ValueError(f"unknown parameter {name!r}: allowed {allowed}")
        return self

    def fit(self, X: Any, y: None = None) -> Self:
        """Run the protocol on lists of subjects per site: images for the masker, or (T_m, D).

        A sequence of lists instead of a mapping names its sites site1, site2 ...
        """
        del y  # scikit-learn's pipelines pass it
        by_site = X if isinstance(X, Mapping) else {f"site{k}": s for k, s in enumerate(X, 1)}
        # scikit-learn has time points in rows, the protocol features.
        sites = {
            name: [self._array(subject).T for subject in _several(subjects)]
            for name, subjects in by_site.items()
        }
        settings: dict[str, object] = {
            "n_components": self.n_components,
            "separation": self.separation,
            **(self.settings or {}),
        }
        if self.epsilon is None:
            settings["private"] = False
        # After the arrays: only a masker that is fitted knows its mask.
        consortium = Consortium(sites, space=self._space())
        self.result_: Result = consortium.run(
            epsilon=self.epsilon, delta=self.delta, settings=settings, seed=self.random_state
        )
        self.components_: Array = self.result_.maps.T
        self.unmixing_: Array = self.result_.unmixing
        self.n_features_in_: int = self.components_.shape[1]
        return self

    def transform(self, X: Sequence[Any]) -> list[Array]:
        """Return the time courses (T_m, n_components) of subjects; they are private.

        As in the fit, a few NaN or infinite values count as the mean of their feature.  ConfigError
        CAPE-E284: not fitted, no list of subjects, other features, too many that are not finite.
        """
        if not hasattr(self, "unmixing_"):
            problem = "JointICA.transform before JointICA.fit"
            raise ConfigError("E284", problem=problem, do="call fit first.")
        arrays = [self._array(one) for one in _several(X)]
        for wrong in {one.shape[1] for one in arrays} - {self.n_features_in_}:
            problem = f"arrays of {wrong} features, the fit had {self.n_features_in_}"
            raise ConfigError("E284", problem=problem, do="give (time points, features).")
        return [np.asarray(_centred(one) @ self.unmixing_.T) for one in arrays]

    def fit_transform(self, X: Any, y: None = None) -> list[Array]:
        """Fit, then transform the subjects of all sites in order."""
        self.fit(X, y)
        subjects = X.values() if isinstance(X, Mapping) else X
        return self.transform([one for site in subjects for one in site])

    def components_image(self) -> Any:
        """Return the maps as a 4-D image; needs a masker."""
        if self.masker is None:
            raise ConfigError("E284", problem="no masker, so no grid", do="give a masker.")
        return self.masker.inverse_transform(self.components_)

    def _array(self, one: Any) -> Array:
        if self.masker is not None:
            if not hasattr(self.masker, "mask_img_") and not hasattr(self.masker, "labels_img_"):
                self.masker.fit()  # from its own mask image, never from a subject's
            one = self.masker.transform(one)
        array = np.asarray(one)
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            problem = "a subject that is no real array (time points, features)"
            do = "fit takes a list of subjects per site, transform a list of subjects."
            raise ConfigError("E284", problem=problem, do=do)
        return array.astype(np.float64)

    def _space(self) -> FeatureSpace | None:
        # Maskers of labels or spheres have no grid that a basis could be made for.
        mask = getattr(self.masker, "mask_img_", None)
        if mask is None or hasattr(self.masker, "labels_img_"):
            return None
        labels = (np.asarray(mask.dataobj) > 0).astype(np.int32)
        return FeatureSpace.of_labels("mask", labels, np.asarray(mask.affine, dtype=np.float64))


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
