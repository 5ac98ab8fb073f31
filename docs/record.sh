#!/usr/bin/env bash
# Record `make demo` as an animated SVG: docs/record.sh OUT.svg
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath "${1:?usage: docs/record.sh OUT.svg}")
tools=build/recording
[[ -x $tools/bin/termtosvg ]] || python3 -m venv "$tools"
"$tools/bin/pip" install --quiet asciinema==2.4.0 termtosvg==1.1.0 "setuptools<81"
TERM=xterm-256color "$tools/bin/asciinema" rec --quiet --overwrite --cols 132 --rows 34 \
  --command "printf '\\033[2m$\\033[0m make demo\\n'; .venv/bin/python -m demo.play demo-output" "$tools/demo.cast"
"$tools/bin/termtosvg" render "$tools/demo.cast" "$out" --min-frame-duration 40 --max-frame-duration 2500 --loop-delay 8000
