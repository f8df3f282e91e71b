#!/bin/sh
# Remake locks/: what ./flint installs, pinned by version and hash. Needs uv; run after changing pyproject.toml.
# locks/core.txt runs the broker, locks/spark.txt adds Spark, locks/security.txt adds PKCS12 and `flintmq cert`, and
# locks/dev.txt adds what the tests need. The build backend,
# with what it needs to install in place, is in all of them, so that the project itself installs without fetching
# anything else. locks/compile.txt adds what compiles the core.
set -eu
cd "$(dirname "$0")/.."

lock() {
    uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
        --no-annotate --python-version 3.11 "$@" -
}

compile() { printf 'hatchling\neditables\n' | lock "$@" pyproject.toml; }

# The widest first: what all can agree on is what each gets.
compile --extra spark --extra security --group dev --output-file locks/dev.txt
compile --extra spark --constraint locks/dev.txt --output-file locks/spark.txt
compile --extra security --constraint locks/dev.txt --output-file locks/security.txt
compile --constraint locks/dev.txt --output-file locks/core.txt
printf 'mypy\nsetuptools\n' | lock --constraint locks/dev.txt --output-file locks/compile.txt
echo "locks/core.txt: $(grep -c '==' locks/core.txt) packages, locks/spark.txt: $(grep -c '==' locks/spark.txt), locks/dev.txt: $(grep -c '==' locks/dev.txt)"
