#!/usr/bin/env bash
# Print the path of an `assay` command, after making an isolated environment for it when there is none yet.
#
# usage: create-venv.sh bot|quant|kernels|npu [EXISTING_VENV]
#
# The environment lies outside the workspace, is keyed by what goes into it, and is never activated: nothing of it leaks
# into later steps, and a repository that is measured cannot shadow it: Python runs with `-I`, for `-m` alone imports the
# modules of the working folder first, which is the workspace. With EXISTING_VENV (a runner that has its own
# torch) nothing is installed. `bot` is installed by hash.
set -euo pipefail

profile=${1:?usage: create-venv.sh bot|quant|kernels|npu [EXISTING_VENV]}
existing=${2:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
unset VIRTUAL_ENV PYTHONPATH PYTHONHOME

if [[ -n $existing ]]; then
  if [[ ! -x $existing/bin/assay ]]; then
    echo "assay: $existing has no bin/assay: give an environment that assay is installed in, or leave 'environment' empty." >&2
    exit 2
  fi
  echo "$existing/bin/assay"
  exit 0
fi

requirements=$here/requirements/$profile.txt
if [[ $profile != bot && $profile != quant && $profile != kernels && $profile != npu ]]; then
  echo "assay: there is no profile '$profile': use bot, quant, kernels or npu." >&2
  exit 2
fi
python=${ASSAY_PYTHON:-python3}
if ! "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "assay: $("$python" --version 2>&1) is too old: put Python 3.11 or newer on the PATH (actions/setup-python does)." >&2
  exit 2
fi
key=$({
  cat "$requirements" "$here/pyproject.toml"
  find "$here"/{baselines,bot,kernels,quant,npu_backend} \( -name '*.py' -o -name '*.j2' -o -name '*.yaml' \) -print0 | sort -z | xargs -0 cat
  "$python" --version
} | sha256sum | cut -c1-16)
venv=${RUNNER_TOOL_CACHE:-${RUNNER_TEMP:-/tmp}}/assay/$profile-$key
made() { [[ -e $venv/ready && -x $venv/bin/python ]]; } # its Python may have gone since, with another version's set-up
if ! made; then
  mkdir -p "$(dirname "$venv")"
  # Two jobs of one machine may come here at once: the second waits, and finds it made.
  if command -v flock > /dev/null; then exec 9> "$venv.lock"; flock 9; fi
fi
if ! made; then
  # `ready` is written last: a job that was stopped halfway leaves an environment that the next one makes anew.
  hashes=()
  [[ $profile == bot ]] && hashes=(--require-hashes)
  rm -rf "$venv"
  "$python" -I -m venv "$venv"
  pip=("$venv/bin/python" -I -m pip --quiet --disable-pip-version-check install)
  "${pip[@]}" "${hashes[@]}" -r "$requirements" >&2
  "${pip[@]}" --no-deps --no-build-isolation "$here" >&2 # its builder came with the requirements, by hash
  touch "$venv/ready"
fi
echo "$venv/bin/assay"
