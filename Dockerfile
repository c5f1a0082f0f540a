ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE}

LABEL org.opencontainers.image.title="coinstac-cape" \
      org.opencontainers.image.description="Joint ICA of fMRI data at several sites, private per subject" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT"

# One thread per container; no bytecode written into a read-only tree at run time.
ENV OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MPLBACKEND=Agg PYTHONUNBUFFERED=1

WORKDIR /computation
COPY requirements/lock.txt requirements/lock.txt
RUN python -m pip install --no-cache-dir -r requirements/lock.txt
COPY pyproject.toml README.md LICENSE ./
COPY cape cape
RUN python -m pip install --no-cache-dir --no-deps --no-build-isolation .
COPY compspec.json local.py remote.py ./

# One site, one round: a document on stdin, the answer on stdout.  An engine that keeps the
# container alive names the command itself (compspec.json: local.py at sites, remote.py otherwise).
CMD ["python", "/computation/local.py"]
