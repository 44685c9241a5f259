#!/usr/bin/env bash
# The client's unit tests on the lowest declared versions of its dependencies and on the newest ones,
# each in an environment of its own without anything of the host.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON="${PYTHON:-python3}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
test_tools=(pytest pytest-asyncio pytest-timeout pytest-randomly hypothesis in-toto-attestation)

# Print what pyproject.toml declares, with the lowest versions pinned.
lowest() {
  "$PYTHON" - <<'PY'
import tomllib
with open("pyproject.toml", "rb") as file:
    for requirement in tomllib.load(file)["project"]["dependencies"]:
        print(requirement.replace(">=", "=="))
PY
}

# Print the tests that use the client alone: those that import nothing of the host.
client_tests() {
  find tests/unit/client tests/unit/receipt -name 'test_*.py' -print0 \
    | xargs -0 grep -LE '^(from|import) (workseal_host|click)' | sort
}

run() {
  local name="$1"
  shift
  local python="$work/$name/bin/python"
  "$PYTHON" -m venv "$work/$name"
  "$python" -m pip install --quiet --disable-pip-version-check . "$@" "${test_tools[@]}"
  echo "== $name: $("$python" -m pip list --disable-pip-version-check --format=freeze \
    | grep -iE '^(grpcio|protobuf|googleapis-common-protos|securesystemslib|cryptography)==' | tr '\n' ' ')"
  # -P: the installed package is tested, not the one beside the tests.
  client_tests | xargs "$python" -P -m pytest -p no:cacheprovider
}

mapfile -t pinned < <(lowest)
run lowest "${pinned[@]}"
run newest --upgrade --upgrade-strategy eager
