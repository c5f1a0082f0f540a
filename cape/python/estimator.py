"""`JointICA`: a consortium behind the interface of scikit-learn, for notebooks and pipelines.

A sample is a person, not a row: X is a list of arrays (time points, features), `groups` the site
of each.  With scikit-learn it is a full estimator (clone, grid search, tags, HTML); without it, fit
and transform still work.  Images are read by cape's own reader or by a nilearn masker.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cape.algorithms.estimators import Array
from cape.data.checks import MAX_BAD
from cape.data.runs import Person, SiteRun
from cape.errors import ConfigError
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import component_names
from cape.python.api import Consortium, Result
from cape.python.people import (
    Given,
    WithConfounds,
    by_site,
    features_of,
    file_behind,
    in_python_words,
    is_file,
    is_folder,
    joined_settings,
    mask_of,
    paired,
    pandas_for,
    people_of,
    run_of,
    same_names,
    several,
    time_series,
    with_names,
)
from cape.report.maps import image_of
from cape.simulation.run_loop import OnProgress

if TYPE_CHECKING:
    _Base = object
    _NotFitted = ValueError
else:
    try:
        from sklearn.base import BaseEstimator as _Base
        from sklearn.exceptions import NotFittedError as _NotFitted
    except ImportError:
        _NotFitted = ValueError

        class _Base:
            """Parameters and repr, for use without scikit-learn."""

            def get_params(self, deep: bool = True) -> dict[str, Any]:
                del deep
                return {
                    name: getattr(self, name) for name in inspect.signature(type(self)).parameters
                }

            def set_params(self, **given: Any) -> Self:
                if unknown := set(given) - set(self.get_params()):
                    raise ValueError(
                        f"Invalid parameter {sorted(unknown)[0]!r} for estimator {self!r}"
                    )
                vars(self).update(given)
                return self

            def __repr__(self) -> str:
                own = inspect.signature(type(self)).parameters.items()
                shown = (f"{name}={v!r}" for name, p in own if (v := vars(self)[name]) != p.default)
                return f"{type(self).__name__}({', '.join(shown)})"


class UnfittedError(ConfigError, _NotFitted):
    """CAPE-E284 of an estimator without a fit; scikit-learn's NotFittedError where it is there."""


class JointICA(_Base):
    """Joint ICA of several sites with differential privacy for every subject.

    Parameters
    ----------
    n_components : int; number of maps; 0: from the settings, or as many as the data allow
    epsilon, delta, private, computation, settings, on_progress
        As for `Consortium.run`; capegica, capedjica or capedualreg.
    masker : image or masker of nilearn, optional
        A mask (image or file name) for cape's reader, or a masker that turns images into arrays.
        None: the mask of the settings, else the bundled mask that suits the images' voxels.
    random_state : int, optional; the seed of `Consortium.run`

    Attributes
    ----------
    components_ : array (n_components, n_features); z-scores of the released maps
    components_img_ : Nifti1Image (x, y, z, n_components); the same in mm, for image data
    unmixing_, mixing_ : array (n_components, n_features), (n_features, n_components)
        The matrix that gives time courses of centred data, and its pseudo-inverse.
    n_features_in_, feature_names_in_ : int, array of str where columns have names
    result_ : Result; all released results

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> maps = rng.standard_normal((3, 12))
    >>> people = [rng.laplace(size=(60, 3)) @ maps for _ in range(9)]
    >>> model = cape.JointICA(3, private=False, settings={"min_timepoints": 40})
    >>> model.fit(people, groups=["north"] * 3 + ["south"] * 6).components_.shape
    (3, 12)
    """

    def __init__(
        self,
        n_components: int = 0,
        *,
        epsilon: float | None = None,
        delta: float = 1e-5,
        private: bool | None = None,
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

    def fit(
        self,
        X: Any,
        y: None = None,
        *,
        groups: Iterable[Any] | None = None,
        confounds: Sequence[Any] | None = None,
    ) -> Self:
        """Run the protocol on people.

        ConfigError CAPE-E284: invalid entries, or arrays with different n_features.

        Parameters
        ----------
        X : list, mapping or folder
            The name of an image, a 4-D image, or an array (n_timepoints, n_features) or the name
            of its file.  An entry is a person, or where names of files say so (``sub-<label>``)
            a run of one, as in a folder.  All are of one site, or of `groups`; or a mapping from
            sites to lists, one list per site, or the folders of sites (BIDS or others).
        y : None; pipelines pass it
        groups : list, optional; the site of each entry
        confounds : list, optional
            Signals to regress out, one for each entry of X: an array (n_timepoints, n_signals), a
            pandas frame or the name of a table.

        Returns
        -------
        JointICA
        """
        del y
        with TemporaryDirectory() as folder:
            places = _places(folder)
            sites: dict[str, Any] = {}
            named: list[tuple[str, tuple[str, ...]]] = []
            for site, people in by_site(paired(X, confounds), groups).items():
                if is_folder(people):
                    sites[site] = Path(people)
                    continue
                given = [self._entry(person, next(places)) for person in several(people)]
                sites[site] = given
                named += [(f"person {m} of {site}", one.columns) for m, one in enumerate(given, 1)]
            self._names = same_names(named)
            return self._fit(sites)

    def _fit(self, sites: Mapping[str, Any]) -> Self:
        asked: object = self.n_components  # people, where fit was forgotten
        if not isinstance(asked, int | np.integer):
            problem = "n_components is no whole number"
            do = "people are given to fit: JointICA(20, epsilon=1).fit(people)."
            raise ConfigError("E284", problem=problem, do=do)
        settings = joined_settings(
            self.settings, n_components=self.n_components or None, computation=self.computation
        )
        templates = settings.get("computation") == "capedualreg"  # its templates define the grid
        on_grid = settings.get("feature_space", "mask") == "mask" and not templates
        if self.masker is None and on_grid and (mask := mask_of(sites)):
            settings.setdefault("mask", mask)
        # After reading: only a fitted masker has its mask.
        consortium = Consortium(sites, space=self._space(), settings=settings)
        self.result_: Result = consortium.run(
            epsilon=self.epsilon,
            delta=self.delta,
            private=self.private,
            seed=self.random_state,
            on_progress=self.on_progress,
        )
        if self.result_.maps is None or self.result_.unmixing is None:
            raise TypeError("the run ended without maps")
        self.components_: Array = self.result_.maps.T
        self.unmixing_: Array = self.result_.unmixing
        self.mixing_: Array = np.asarray(np.linalg.pinv(self.unmixing_))
        self.n_features_in_: int = self.components_.shape[1]
        self._config, self._read_in = consortium.config, self.result_.outcome.space
        if self._config.feature_space == "matrix":  # tables in folders are as arrays are
            orientation: Any = settings.get("orientation", "time_by_feature")
            self._config = replace(self._config, orientation=orientation)
        vars(self).pop("feature_names_in_", None)
        if columns := self.result_.outcome.columns:
            self.feature_names_in_: Array = np.asarray(columns, dtype=object)
        if hasattr(self.masker, "inverse_transform"):
            self.components_img_: Any = self.masker.inverse_transform(self.components_)
        elif self._read_in is not None and self._read_in.on_grid:
            self.components_img_ = image_of(self.result_.maps, self._read_in)
        return self

    def transform(self, X: Any, confounds: Sequence[Any] | None = None) -> list[Any]:
        """Return the time courses of people, cleaned as in the fit; they are private.

        A few NaN or infinite values count as the mean of their feature.
        ConfigError CAPE-E284: not fitted, no list of people, other features, too many such values.

        Parameters
        ----------
        X, confounds : as for `fit`, of people or of one site

        Returns
        -------
        list of arrays (n_timepoints, n_components), or of frames, see `set_output`
        """
        container = self._container()
        arrays = self._arrays(X, confounds)
        return [container(one @ self.unmixing_.T) for one in arrays]

    def fit_transform(self, X: Any, y: None = None, **given: Any) -> list[Any]:
        """Fit, then transform the people of all sites in their given order.

        Parameters
        ----------
        X, y, **given : as for `fit`

        Returns
        -------
        list, as of `transform`
        """
        self.fit(X, y, **given)
        if given.get("groups") is None and given.get("confounds") is None:
            sites = by_site(X, None).values()
            folders = (
                self._arrays(people, None) if is_folder(people) else people for people in sites
            )
            X = [x for people in folders for x in people]
        return self.transform(X, given.get("confounds"))

    def inverse_transform(self, X: Sequence[Any]) -> list[Array]:
        """Return the data that time courses represent, as they are after cleaning.

        Parameters
        ----------
        X : list of arrays (n_timepoints, n_components)

        Returns
        -------
        list of arrays (n_timepoints, n_features)
        """
        self._check_fitted("inverse_transform")
        courses = [np.asarray(person) for person in several(X)]
        features_of(courses, len(self.components_))
        return [person @ self.mixing_.T for person in courses]

    def score(self, X: Sequence[Any], y: None = None) -> float:
        """Return the share of the variance of cleaned data that the components explain, at most 1.

        It is computed from their data and is private.

        Parameters
        ----------
        X, y : as for `transform`; y is not used

        Returns
        -------
        float
        """
        del y
        explained = total = 0.0
        for person in self._arrays(X):
            residual = person - person @ self.unmixing_.T @ self.mixing_.T
            explained += float(np.sum(person**2) - np.sum(residual**2))
            total += float(np.sum(person**2))
        return explained / total if total else 0.0

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the components, as in all files: C01, C02 ...

        Parameters
        ----------
        input_features : None; not used

        Returns
        -------
        array of str (n_components,)
        """
        del input_features
        self._check_fitted("get_feature_names_out")
        return np.asarray(component_names(len(self.components_)), dtype=object)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose the type that `transform` returns for each person.

        Parameters
        ----------
        transform : "default" (arrays) or "pandas", optional

        Returns
        -------
        JointICA
        """
        if transform not in (None, "default", "pandas"):
            raise ValueError(f"transform={transform!r}: allowed 'default', 'pandas'")
        if transform is not None:
            # scikit-learn's `clone` copies an attribute of this name.
            self._sklearn_output_config = {"transform": transform}
        return self

    @property
    def _repr_html_(self) -> Callable[[], str]:
        """HTML for notebooks: the result after `fit`, before it scikit-learn's diagram."""
        if hasattr(self, "result_"):
            return self.result_._repr_html_
        return super()._repr_html_  # type: ignore[misc,no-any-return]

    def _repr_mimebundle_(self, **given: Any) -> dict[str, str]:
        shown = getattr(self, "_repr_html_", None)  # where scikit-learn has one
        return {"text/plain": repr(self)} | ({} if shown is None else {"text/html": shown()})

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
        container = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        if container == "default":
            return np.asarray
        pd = pandas_for("set_output")
        names = self.get_feature_names_out()
        return lambda courses: pd.DataFrame(courses, columns=names)

    def _check_fitted(self, method: str) -> None:
        if not hasattr(self, "unmixing_"):
            problem = f"JointICA.{method} before JointICA.fit"
            raise UnfittedError("E284", problem=problem, do="call fit first.")

    @in_python_words
    def _arrays(self, X: Any, confounds: Sequence[Any] | None = None) -> list[Array]:
        self._check_fitted("transform")
        with TemporaryDirectory() as folder:
            places = _places(folder)
            entries = [] if is_folder(X) else several(paired(X, confounds))
            if not entries or all(map(is_folder, entries)):
                people: Sequence[Any] = self._below(X)
            else:
                given = [self._entry(person, next(places)) for person in entries]
                people = [one.data for one in given]
                named = [(f"person {m}", one.columns) for m, one in enumerate(given, 1)]
                same_names([("the fit", self._names), *named])
            if raw := [x for x in people if _is_array(x)]:
                features_of(raw, self.n_features_in_)
            arrays = [self._series(person, m) for m, person in enumerate(people, 1)]
        features_of(arrays, self.n_features_in_)
        return arrays

    def _below(self, X: Any) -> list[Person]:
        """Return the people of a folder, or of a list of them."""
        sites = by_site(X, None).values()
        return [one for site in sites for one in people_of(site, self._config)]

    def _series(self, person: Any, number: int) -> Array:
        """Return a person (T, D), cleaned as at a site."""
        if _is_array(person):
            person = run_of(_checked(person, number), None, Path(f"person {number}"))
        if isinstance(person, SiteRun):
            person = Person(label=person.name, runs=(person,))
        return time_series(person, self._read_in, self._config)

    def _entry(self, person: Any, place: Path) -> Given:
        """Return an entry of a list: an array (T, D), or a run that cape's reader reads."""
        person, confounds = person if isinstance(person, WithConfounds) else (person, None)
        file = file_behind(person)
        if hasattr(self.masker, "transform"):
            if not hasattr(self.masker, "mask_img_") and not hasattr(self.masker, "labels_img_"):
                self.masker.fit()  # from its own mask image, never from a subject's
            person = (
                self.masker.transform(person)
                if confounds is None
                else self.masker.transform(person, confounds)
            )
            confounds = None
        person, columns, _, digest = with_names(person, joined_settings(self.settings))
        if is_file(person):
            return Given(run_of(person, confounds, place), file=file)
        array = np.asarray(person)
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            problem = "a subject that is no real array (time points, features)"
            do = "fit takes a list of subjects per site, or of all and groups=; "
            do += "transform a list of subjects."
            raise ConfigError("E284", problem=problem, do=do)
        array = array.astype(np.float64)
        run = array if confounds is None else run_of(array, confounds, place)
        return Given(run, columns, file, digest)

    def _space(self) -> FeatureSpace | None:
        mask = self.masker
        if hasattr(mask, "transform"):
            # Maskers of labels or spheres have no grid for a basis.
            mask = None if hasattr(mask, "labels_img_") else getattr(mask, "mask_img_", None)
        if mask is None:
            return None
        if not is_file(mask) or (isinstance(mask, str | os.PathLike) and not Path(mask).is_file()):
            do = "give a mask (an image or its file name) or a masker."
            raise ConfigError("E284", problem=f"masker={mask!r} is no mask", do=do)
        from cape.data.space import space_of
        from cape.report.files import load_image

        image = load_image(Path(mask)) if isinstance(mask, str | os.PathLike) else mask
        name = Path(image.get_filename() or "").name
        labels = (np.asarray(image.dataobj) > 0).astype(np.int32)
        affine = np.asarray(image.affine, dtype=np.float64)
        return FeatureSpace.of_labels("mask", labels, affine, space_of(name, image.header))


def _places(folder: str) -> Iterator[Path]:
    return (Path(folder, f"image-{number}.nii") for number in count(1))


def _is_array(person: Any) -> bool:
    return not isinstance(person, SiteRun | Person)


def _checked(X: Array, number: int) -> Array:
    """Return a person (T, D) that has values; ConfigError E284: too many are not finite."""
    if X.size == 0 or (~np.isfinite(X)).mean() > MAX_BAD:
        problem = f"person {number} has no values or too many that are NaN or infinite"
        do = f"leave it out; allowed {100 * MAX_BAD:g} %."
        raise ConfigError("E284", problem=problem, do=do)
    return X
