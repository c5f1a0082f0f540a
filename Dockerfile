# The image serves one party of a run: COINSTAC starts it per site and for the aggregator.
# Any base with Python >= 3.11, venv and pip will do.  This one is 3.11.16-slim-bookworm, all platforms;
# another tag may not take its place unseen (CONTRIBUTING.md says how it is renewed).
ARG BASE_IMAGE=python@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

# -- what a run needs, in a virtual environment that is copied whole
FROM ${BASE_IMAGE} AS dependencies
RUN python3 -m venv /opt/cape
COPY requirements/lock.txt /build/requirements/lock.txt
RUN /opt/cape/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes -r /build/requirements/lock.txt

FROM dependencies AS package
WORKDIR /build
COPY requirements/build.txt requirements/build.txt
RUN /opt/cape/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY cape cape
# Wings that no run of a hospital needs; with LEFT_OUT=lab the papers' computations stay.
ARG LEFT_OUT="papers lab"
RUN cd cape && for wing in ${LEFT_OUT}; do rm -r "$wing" || exit 1; done
RUN /opt/cape/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --no-deps --no-build-isolation --prefix /opt/package .

FROM dependencies AS trimmed
RUN /opt/cape/bin/python -m pip uninstall --quiet --yes pip

FROM ${BASE_IMAGE}
COPY --from=trimmed /opt/cape /opt/cape
COPY --from=package /opt/package /opt/cape
COPY --chmod=755 packaging/node /opt/cape/bin/node

# Any user id may run the image, so nothing is written below a home; no USER is set, because the
# folders that COINSTAC mounts belong to whoever runs the engine.
ENV PATH=/opt/cape/bin:$PATH \
    MPLBACKEND=Agg CAPE_FONT_LIST=/opt/cape/fonts \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

# The list of fonts takes seconds to make, and every container would make its own: each process takes
# a copy (cape/report/plots.py), and only the image's builder may write the list.
RUN MPLCONFIGDIR=$CAPE_FONT_LIST python -c 'import matplotlib.font_manager' \
    && chmod -R u=rwX,go=rX $CAPE_FONT_LIST

WORKDIR /computation
COPY compspec.json local.py remote.py ./

# COINSTAC's second version: documents over a websocket.  Its first version runs
# `python /computation/local.py` or remote.py per round, through the same server.
EXPOSE 8881
CMD ["python", "-m", "cape.engines.coinstac.service"]

ARG REVISION=unknown
LABEL org.opencontainers.image.title="coinstac-cape" \
      org.opencontainers.image.description="Joint ICA of fMRI data at several sites, private per subject" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="MIT"
