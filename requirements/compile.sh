#!/usr/bin/env bash
# Pin what pyproject.toml allows: bot.txt (with hashes, for the actions), quant.txt, kernels.txt, npu.txt and dev.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
compile() {
  local name=$1
  shift
  "$uv" pip compile --quiet --upgrade pyproject.toml requirements/build.in -c requirements/constraints.txt --python-version 3.11 \
    --no-header --no-emit-index-url --no-annotate "$@" -o "requirements/$name.txt"
}
compile bot --universal --generate-hashes
compile quant --extra quant
compile kernels --extra kernels -c requirements/quant.txt
compile npu --extra npu -c requirements/quant.txt
compile dev --extra quant --extra dev
