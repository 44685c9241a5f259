#!/usr/bin/env bash
# What the base installation costs and what it can do: packages, size, import time, `verify`, and a
# clear answer for every command that needs the host. Fails when the host's packages are needed or found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON="${PYTHON:-python3}"
vectors="$PWD/proto/vectors/receipt"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

fail() { echo "client_footprint: $*" >&2; exit 1; }

"$PYTHON" -m venv "$work/venv"
python="$work/venv/bin/python"
workseal="$work/venv/bin/workseal"
site="$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
kilobytes() { du -sk "$site" | cut -f1; }
names() { "$python" -m pip list --disable-pip-version-check --format=freeze | grep -vE '^(pip|setuptools)=='; }

bare="$(kilobytes)"
"$python" -m pip install --quiet --disable-pip-version-check .
# The byte code is pip's doing and of a size of its own; compile all of it, so that the figure is stable.
"$python" -m compileall -q "$site" || true
echo "packages: $(names | wc -l) ($(names | sed 's/==/ /' | paste -sd, | sed 's/,/, /g'))"
echo "size: $((($(kilobytes) - bare) / 1024)) MB"

cd "$work"
for module in click aiosqlite structlog jsonschema pathspec rich xxhash; do
  if "$python" -c "import $module" 2>/dev/null; then fail "$module belongs to the host, and is installed"; fi
done

# Print the median wall time of five runs, in ms.
median_ms() {
  "$python" - "$@" <<'PY'
import statistics, subprocess, sys, time
times = []
for _ in range(5):
    start = time.perf_counter()
    subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    times.append((time.perf_counter() - start) * 1000)
print(round(statistics.median(times)))
PY
}

echo "interpreter alone: $(median_ms "$python" -c pass) ms"
echo "import workseal: $(median_ms "$python" -c 'import workseal') ms"
echo "with verifier: $(median_ms "$python" -c 'from workseal import ReceiptVerifier') ms"
echo "with client: $(median_ms "$python" -c 'from workseal import HostClient, run_pending') ms"

# Write the first golden receipt and its key as files.
"$python" - "$vectors/accepted.json" <<'PY'
import json, sys
from pathlib import Path
vectors = json.loads(Path(sys.argv[1]).read_text())
vector = next(item for item in vectors if not item["known"] and not item["between"])
Path("receipt.json").write_text(vector["envelope"])
Path("key.pem").write_text(vector["pins"][0]["public"])
PY
export WORKSEAL_STATE_DIR="$work/state"
"$workseal" verify receipt.json --key key.pem >/dev/null || fail "a golden receipt does not verify"
sed 's/"payload":"eyJ/"payload":"eyK/' receipt.json > tampered.json
code=0
"$workseal" verify tampered.json --key key.pem >/dev/null 2>&1 || code=$?
[[ $code == 1 ]] || fail "a tampered receipt: exit $code"
echo "workseal verify: $(median_ms "$workseal" verify receipt.json --key key.pem) ms"

# `run` and `exec` keep all codes but 125 for the command itself.
for answer in serve:2 run:125 exec:125 digest:2 manifest:2 diff:2 status:2 receipts:2; do
  verb="${answer%%:*}"
  code=0
  said="$("$workseal" "$verb" 2>&1 >/dev/null)" || code=$?
  [[ $code == "${answer##*:}" && $said == *"pip install 'workseal[host]'"* ]] \
    || fail "workseal $verb: exit $code, said: $said"
done
"$workseal" --help >/dev/null
echo "commands of the host: say how to install it"
