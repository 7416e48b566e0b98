#!/usr/bin/env bash
# Fills a folder with what the tests talk to: a real Apache Kafka, a real S3 server, emulators of Azure and of Google Cloud Storage, clients in Python and C, a browser.
#
#   peers/install.sh [DIR]        DIR is .cache/peers of this repository if not given
#
# Run it as often as you like: what is there already is left alone. Everything goes into DIR but the Debian packages, which need root or sudo without
# a password; without either it prints the line to run and stops. Needs Go, Java 17 or later with its compiler, Maven, Node.js 18 or later with npm, Python 3.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
dir=${1:-$here/../.cache/peers}
mkdir -p "$dir/.stamps"
dir=$(cd -- "$dir" && pwd)

azurite_version=3.35.0
kafkajs_version=2.2.4
python_packages=(confluent-kafka==2.16.1 aiokafka==0.14.0 kafka-python==3.0.12)
debian_commands=(kcat chromium) # named as their packages are

say() { echo "peers: $*"; }
die() { echo "peers: $*" >&2; exit 1; }

# Two runs at once would write over each other.
if command -v flock >/dev/null; then
  exec 9>"$dir/.lock"
  flock 9
fi

# done_already NAME INPUT: the part was installed from the same input before.
done_already() { [ -f "$dir/.stamps/$1" ] && [ "$(cat "$dir/.stamps/$1")" = "$2" ]; }
mark_done() { printf '%s\n' "$2" >"$dir/.stamps/$1.part" && mv "$dir/.stamps/$1.part" "$dir/.stamps/$1"; }
digest() { cat "$@" | sha256sum | cut -d' ' -f1; }

need() { command -v "$1" >/dev/null || die "$1 is missing: $2"; }

major() { "$@" 2>&1 | sed -n 's/[^0-9]*\([0-9]*\).*/\1/p;q'; }

check_tools() {
  need go "install Go 1.26 or later"
  need java "install a JDK, version 17 or later (Debian: apt-get install openjdk-17-jdk-headless)"
  need javac "install a JDK, not only a JRE (Debian: apt-get install openjdk-17-jdk-headless)"
  need mvn "install Maven (Debian: apt-get install maven)"
  need node "install Node.js 18 or later (Debian: apt-get install nodejs)"
  need npm "install npm (Debian: apt-get install npm)"
  need python3 "install Python 3 (Debian: apt-get install python3 python3-venv)"
  local v
  v=$(major javac -version); [ "${v:-0}" -ge 17 ] || die "javac has version ${v:-unknown}: want 17 or later"
  v=$(major node --version); [ "${v:-0}" -ge 18 ] || die "node has version ${v:-unknown}: want 18 or later"
}

install_debian() {
  local missing=() c
  for c in "${debian_commands[@]}"; do command -v "$c" >/dev/null || missing+=("$c"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as=()
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as=(sudo -n); else as=(none); fi
  fi
  if [ "${as[0]:-}" = none ] || ! command -v apt-get >/dev/null; then
    echo "peers: ${missing[*]} missing. Run this, then make again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  say "installing ${missing[*]}"
  "${as[@]}" apt-get update -qq
  "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

install_stores() { # S3 and Google Cloud Storage, built from the module beside this script
  local input; input=$(go env GOVERSION)-$(digest "$here"/go.mod "$here"/go.sum "$here"/cmd/*/main.go)
  done_already stores "$input" && return 0
  say "building the S3 server and the GCS emulator"
  (cd "$here" && go build -p 2 -o "$dir/bin/" ./cmd/...)
  mark_done stores "$input"
}

install_kafka() {
  local input; input=$(digest "$here"/kafka/kafka-peer.sh "$here"/kafka/pom.xml "$here"/kafka/*.java)
  done_already kafka "$input" && return 0
  say "fetching Apache Kafka"
  KAFKA_PEER_HOME=$dir/kafka "$here/kafka/kafka-peer.sh" install
  mark_done kafka "$input"
}

install_azurite() {
  done_already azurite "$azurite_version" && return 0
  say "installing Azurite $azurite_version"
  mkdir -p "$dir/azurite"
  npm install --prefix "$dir/azurite" --no-audit --no-fund --loglevel=error "azurite@$azurite_version" >/dev/null
  mark_done azurite "$azurite_version"
}

install_kafkajs() {
  done_already kafkajs "$kafkajs_version" && return 0
  say "installing KafkaJS $kafkajs_version"
  mkdir -p "$dir/kafkajs"
  npm install --prefix "$dir/kafkajs" --no-audit --no-fund --loglevel=error "kafkajs@$kafkajs_version" >/dev/null
  mark_done kafkajs "$kafkajs_version"
}

install_python() {
  local input; input="$(python3 --version) ${python_packages[*]}"
  done_already python "$input" && return 0
  say "installing Python clients"
  rm -rf "$dir/python"
  python3 -m venv "$dir/python" || die "python3 -m venv failed (Debian: apt-get install python3-venv)"
  "$dir/python/bin/pip" install --quiet --disable-pip-version-check "${python_packages[@]}"
  mark_done python "$input"
}

check_tools
install_debian
# The build keeps the processors busy, the rest the network.
install_stores & building=$!
trap 'kill "$building" 2>/dev/null || true' EXIT
install_kafka
install_azurite
install_kafkajs
install_python
wait "$building" || die "building the stores failed"
trap - EXIT
say "ready in $dir"
