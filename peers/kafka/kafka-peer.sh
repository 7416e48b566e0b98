#!/usr/bin/env bash
# A real Apache Kafka broker (KRaft, one node, tiered storage ON through LocalTieredStorage)
# from Maven artifacts only.
#
#   kafka-peer.sh install                  fetch jars into $KAFKA_PEER_HOME/dist/<version>/
#   kafka-peer.sh start [port] [datadir]   format if new, start on loopback, wait until ready
#   kafka-peer.sh stop  [datadir]          stop the broker started on datadir
#   kafka-peer.sh status [datadir]
#   kafka-peer.sh cluster-start N [port] [datadir]   N nodes, replication N, one remote folder; cluster-stop [datadir]
#   kafka-peer.sh run CLASS [args...]      run a main class on the broker's class path
#   kafka-peer.sh topics|configs|produce-perf|consume-perf|console-consumer|dump-log|groups|offsets [args...]
#
# Environment (all optional):
#   KAFKA_PEER_HOME          where dist/ lies                      (default: .cache/peers/kafka of this repository)
#   KAFKA_PEER_VERSION       broker and tools version              (default: 4.4.0)
#   KAFKA_PEER_TEST_VERSION  version of the *-test.jar plug-in     (default: 4.3.1; no 4.4.0 test jar is published)
#   KAFKA_PEER_DATA          data folder                           (default: $KAFKA_PEER_HOME/data)
#   KAFKA_PEER_PORT          broker port                           (default: 19092)
#   KAFKA_PEER_CONTROLLER_PORT                                     (default: port + 1)
#   KAFKA_PEER_TIERED        true|false                            (default: true)
#   KAFKA_PEER_REMOTE_LATENCY_MS, KAFKA_PEER_REMOTE_STREAM_BYTES_PER_SECOND
#                            first-byte wait and pace of each remote fetch, as an object store has (default: 0, none)
#   KAFKA_PEER_JAVA          java binary                           (default: $JAVA_HOME/bin/java, else java)
#   KAFKA_PEER_HEAP          JVM heap flags of the broker          (default: -Xmx1g -Xms512m)
#   KAFKA_PEER_TOOL_HEAP     JVM heap flags of tools               (default: -Xmx512m)
#   KAFKA_PEER_NODE_ID, KAFKA_PEER_ROLES, KAFKA_PEER_RF, KAFKA_PEER_REMOTE, KAFKA_PEER_NODE_IDS   one node of several, see cluster-start
#   KAFKA_PEER_EXTRA         lines added at the end of server.properties (later lines win)
#   KAFKA_PEER_WAIT          seconds to wait for readiness         (default: 60)
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
home=${KAFKA_PEER_HOME:-${REWIND_PEERS:-$here/../../.cache/peers}/kafka}
version=${KAFKA_PEER_VERSION:-4.4.0}
testver=${KAFKA_PEER_TEST_VERSION:-4.3.1}
java=${KAFKA_PEER_JAVA:-${JAVA_HOME:+$JAVA_HOME/bin/}java}
tiered=${KAFKA_PEER_TIERED:-true}
node=${KAFKA_PEER_NODE_ID:-1}
roles=${KAFKA_PEER_ROLES:-broker,controller}
rf=${KAFKA_PEER_RF:-1}
lib=$home/dist/$version/lib
rsm=$home/dist/rsm-$testver
connect=$home/dist/connect-$testver
data_default=${KAFKA_PEER_DATA:-$home/data}
port_default=${KAFKA_PEER_PORT:-19092}

die() { echo "kafka-peer: $*" >&2; exit 1; }
abspath() { case $1 in /*) printf '%s' "$1" ;; *) printf '%s' "$PWD/$1" ;; esac; }
need_lib() { [ -e "$lib/kafka_2.13-$version.jar" ] || die "no jars in $lib; run '$0 install' first"; }

tool() {  # tool CLASS args...
  need_lib
  # shellcheck disable=SC2086
  exec "$java" ${KAFKA_PEER_TOOL_HEAP:--Xmx512m} -XX:+UseSerialGC \
    -Dlog4j2.configurationFile="$here/log4j2-tools.properties" -cp "$lib/*" "$@"
}

old_classes() {  # old_classes DIR NAME: a class, and those inside it, of the clients of $testver
  mvn -q -B -Dstyle.color=never -f "$here/pom.xml" dependency:copy \
    -Dartifact="org.apache.kafka:kafka-clients:$testver" -DoutputDirectory="$1.tmp"
  mkdir -p "$1"
  python3 - "$1.tmp/kafka-clients-$testver.jar" "$1" "$2" <<'P'
import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
for n in z.namelist():
    if n.startswith(sys.argv[3]) and n.endswith(".class"):
        z.extract(n, sys.argv[2])
P
  rm -rf "$1.tmp"
}

install() {
  if [ ! -e "$lib/kafka_2.13-$version.jar" ] || [ ! -e "$lib/kafka-streams-$version.jar" ]; then
    mkdir -p "$lib.part"
    mvn -q -B -Dstyle.color=never -f "$here/pom.xml" dependency:copy-dependencies \
      -DincludeScope=runtime -DoutputDirectory="$lib.part" -Dkafka.version="$version"
    rm -rf "$lib"; mv "$lib.part" "$lib"
  fi
  # LocalTieredStorage lives in kafka-storage's test jar and names TestUtils of kafka-clients' test jar.
  # They lie in a folder of their own, which the broker loads through a child-first class loader.
  for a in kafka-storage kafka-clients; do
    if [ ! -e "$rsm/$a-$testver-test.jar" ]; then
      mvn -q -B -Dstyle.color=never -f "$here/pom.xml" dependency:copy \
        -Dartifact="org.apache.kafka:$a:$testver:jar:test" -DoutputDirectory="$rsm"
    fi
  done
  # 4.4.0 moved org.apache.kafka.common.utils.LogContext to ...utils.internals; the 4.3.1 plug-in still
  # names the old one. Give it just that class (a whole second kafka-clients would clash with the broker's).
  if [ ! -e "$rsm/classes/org/apache/kafka/common/utils/LogContext.class" ]; then
    old_classes "$rsm/classes" org/apache/kafka/common/utils/LogContext
  fi
  # Connect's file connectors, of which no 4.4.0 could be had, name AppInfoParser by its old place.
  if [ ! -e "$connect/connect-file-$testver.jar" ]; then
    mvn -q -B -Dstyle.color=never -f "$here/pom.xml" dependency:copy \
      -Dartifact="org.apache.kafka:connect-file:$testver" -DoutputDirectory="$connect"
  fi
  if [ ! -e "$connect/classes/org/apache/kafka/common/utils/AppInfoParser.class" ]; then
    old_classes "$connect/classes" org/apache/kafka/common/utils/AppInfoParser
  fi
  if [ "$here/SlowTieredStorage.java" -nt "$rsm/classes/peer/SlowTieredStorage.class" ] || [ "$here/Meters.java" -nt "$rsm/classes/peer/Meters.class" ]; then
    javac -nowarn -d "$rsm/classes" -cp "$lib/*:$rsm/*" "$here/SlowTieredStorage.java" "$here/Meters.java"
  fi
  echo "kafka-peer: $version in $lib, LocalTieredStorage $testver in $rsm"
}

running() { [ -s "$1/broker.pid" ] && kill -0 "$(cat "$1/broker.pid")" 2>/dev/null; }

write_config() {  # write_config data port cport
  cat >"$1/server.properties" <<P
process.roles=$roles
node.id=$node
listeners=PLAINTEXT://127.0.0.1:$2$([ "$roles" = broker ] || echo ",CONTROLLER://127.0.0.1:$3")
advertised.listeners=PLAINTEXT://127.0.0.1:$2$([ "$roles" = broker ] || echo ",CONTROLLER://127.0.0.1:$3")
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:$3
log.dirs=$1/log
num.partitions=1
default.replication.factor=$rf
min.insync.replicas=1
offsets.topic.replication.factor=$rf
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=$rf
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=$rf
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=4
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=500
log.segment.delete.delay.ms=1000
log.cleaner.dedupe.buffer.size=16777216
controlled.shutdown.enable=false
P
  if [ "$tiered" = true ]; then
    cat >>"$1/server.properties" <<P
remote.log.storage.system.enable=true
remote.log.storage.manager.class.name=peer.SlowTieredStorage
remote.log.storage.manager.class.path=$rsm/*:$rsm/classes
remote.log.storage.manager.impl.prefix=rsm.config.
rsm.config.dir=${KAFKA_PEER_REMOTE:-$1/remote}
rsm.config.latency.ms=${KAFKA_PEER_REMOTE_LATENCY_MS:-0}
rsm.config.stream.bytes.per.second=${KAFKA_PEER_REMOTE_STREAM_BYTES_PER_SECOND:-0}
remote.log.metadata.manager.class.name=org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.listener.name=PLAINTEXT
remote.log.metadata.manager.impl.prefix=rlmm.config.
rlmm.config.remote.log.metadata.topic.replication.factor=$rf
rlmm.config.remote.log.metadata.topic.min.isr=1
rlmm.config.remote.log.metadata.topic.num.partitions=5
remote.log.manager.task.interval.ms=1000
P
  fi
  printf '%s\n' "${KAFKA_PEER_EXTRA:-}" >>"$1/server.properties"
}

start() {
  need_lib
  local port=${1:-$port_default} data cport
  data=$(abspath "${2:-$data_default}"); cport=${KAFKA_PEER_CONTROLLER_PORT:-$((port + 1))}
  running "$data" && die "already running on $data, pid $(cat "$data/broker.pid")"
  mkdir -p "$data/log" "$data/remote"
  write_config "$data" "$port" "$cport"
  if [ ! -e "$data/log/meta.properties" ]; then
    local id; id=${KAFKA_PEER_CLUSTER_ID:-$("$java" -cp "$lib/*" kafka.tools.StorageTool random-uuid 2>/dev/null | tail -1)}
    "$java" -Dlog4j2.configurationFile="$here/log4j2-tools.properties" -cp "$lib/*" \
      kafka.tools.StorageTool format -t "$id" -c "$data/server.properties" $([ "$roles" = broker ] || echo --standalone) >"$data/format.out" 2>&1 \
      || { cat "$data/format.out" >&2; die "format failed"; }
  fi
  # shellcheck disable=SC2086
  nohup "$java" ${KAFKA_PEER_HEAP:--Xmx1g -Xms512m} -XX:+UseG1GC -Djava.awt.headless=true \
    -Dkafka.logs.dir="$data" -Dlog4j2.configurationFile="$here/log4j2.properties" ${KAFKA_PEER_JVM:-} \
    -cp "$lib/*" kafka.Kafka "$data/server.properties" >"$data/broker.out" 2>&1 </dev/null &
  echo $! >"$data/broker.pid"
  local t=0 limit=$(( ${KAFKA_PEER_WAIT:-60} * 5 ))
  until grep -q 'Kafka Server started' "$data/broker.out" 2>/dev/null; do
    running "$data" || { tail -20 "$data/broker.out" >&2; die "broker died"; }
    t=$((t + 1)); [ $t -le $limit ] || die "broker not ready after ${KAFKA_PEER_WAIT:-60} s; see $data/broker.out"
    sleep 0.2
  done
  echo "kafka-peer: $version on 127.0.0.1:$port, pid $(cat "$data/broker.pid"), data $data"
}

stop() {
  local data pid; data=$(abspath "${1:-$data_default}")
  running "$data" || { echo "kafka-peer: not running on $data"; rm -f "$data/broker.pid"; return 0; }
  pid=$(cat "$data/broker.pid"); kill "$pid"
  for _ in $(seq 150); do kill -0 "$pid" 2>/dev/null || break; sleep 0.2; done
  kill -0 "$pid" 2>/dev/null && kill -9 "$pid"
  rm -f "$data/broker.pid"; echo "kafka-peer: stopped $pid"
}

# A cluster of N nodes in datadir/1 ... datadir/N on port, port+10, ...; node 1 is the controller as well; one remote folder for all.
# Node ids are KAFKA_PEER_NODE_IDS (default "1 2 3 ..."; try "7 100 400"). Stop or kill single nodes with `stop datadir/ID` or their broker.pid.
cluster_start() {  # cluster_start N [port] [datadir]
  local n=${1:?how many nodes} port=${2:-$port_default} data ids id i=0 cport
  data=$(abspath "${3:-$data_default}"); mkdir -p "$data/remote"; read -ra ids <<<"${KAFKA_PEER_NODE_IDS:-$(seq -s ' ' "$n")}"
  cport=$((port + 1)); [ -s "$data/cluster.id" ] || "$java" -cp "$lib/*" kafka.tools.StorageTool random-uuid 2>/dev/null | tail -1 >"$data/cluster.id"
  for id in "${ids[@]:0:$n}"; do
    running "$data/$id" || KAFKA_PEER_HOME=$home KAFKA_PEER_NODE_ID=$id KAFKA_PEER_RF=$n KAFKA_PEER_CLUSTER_ID=$(cat "$data/cluster.id") KAFKA_PEER_REMOTE=$data/remote \
      KAFKA_PEER_CONTROLLER_PORT=$cport KAFKA_PEER_ROLES=$([ $i = 0 ] && echo broker,controller || echo broker) KAFKA_PEER_HEAP=${KAFKA_PEER_HEAP:--Xmx700m -Xms256m} \
      "$0" start $((port + 10 * i)) "$data/$id"
    i=$((i + 1))
  done
}
cluster_stop() { local d; for d in "$(abspath "${1:-$data_default}")"/*/; do [ -e "$d/server.properties" ] && "$0" stop "${d%/}"; done; }

cmd=${1:-help}; [ $# -gt 0 ] && shift
case $cmd in
  install) install ;;
  start) start "$@" ;;
  stop) stop "$@" ;;
  cluster-start) need_lib; cluster_start "$@" ;;
  cluster-stop) cluster_stop "$@" ;;
  status) d=$(abspath "${1:-$data_default}"); if running "$d"; then echo "running $(cat "$d/broker.pid")"; else echo stopped; exit 3; fi ;;
  classpath) need_lib; echo "$lib/*" ;;
  run) tool "$@" ;;
  topics) tool org.apache.kafka.tools.TopicCommand "$@" ;;
  configs) tool org.apache.kafka.tools.ConfigCommand "$@" ;;
  produce-perf) tool org.apache.kafka.tools.ProducerPerformance "$@" ;;
  consume-perf) tool org.apache.kafka.tools.ConsumerPerformance "$@" ;;
  console-consumer) tool org.apache.kafka.tools.consumer.ConsoleConsumer "$@" ;;
  dump-log) tool org.apache.kafka.tools.DumpLogSegments "$@" ;;
  groups) tool org.apache.kafka.tools.consumer.group.ConsumerGroupCommand "$@" ;;
  offsets) tool org.apache.kafka.tools.GetOffsetShell "$@" ;;
  *) sed -n '2,/^set /{/^#/p}' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//' ; [ "$cmd" = help ] || exit 2 ;;
esac
