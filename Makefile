# Targets for people; `make demo` and `make test` do all set-up themselves. Needs Go and make (the tests also Java, Maven, Node and Python).
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PEERS := $(CURDIR)/.cache/peers
# Google's client for its store brings gRPC's xDS with it, which we never use: without it the program is a fifth smaller on disk, and starts with less in memory.
export GOFLAGS := $(strip $(GOFLAGS) -tags=disable_grpc_modules)
TEST_ENV := REWIND_PEERS=$(PEERS) REWIND_KAFKA_PEER=$(PEERS)/kafka
GOTEST := $(TEST_ENV) go test -timeout 20m

.PHONY: all build demo test check peers lint test-admin test-golden test-metadata test-aiven test-log test-tier test-library test-bare-cluster test-clients test-stores test-broker test-security test-gateway test-gateway-clients test-cluster test-doctor test-streams test-groups test-kill test-differential test-checkers test-tools test-race bench-proxy clean

all: build

build:
	go build -o bin/rewind ./cmd/rewind

demo: build
	./bin/rewind demo

# The tests need real peers: an Apache Kafka, an S3 server, Azurite, a GCS emulator, Python clients, kcat. All of it lands in .cache/peers.
peers:
	peers/install.sh $(PEERS)

test: peers lint
	$(GOTEST) -p 2 ./...
	$(MAKE) test-race

# The packages with goroutines once more under the race detector, which needs a C compiler.
RACE := . ./internal/remote/... ./internal/fetch/... ./internal/session/... ./internal/clientconn/... ./internal/history/... ./internal/partlog/... ./internal/tier/... ./internal/locate/... \
	./internal/broker/... ./internal/fileserver/... ./httpfetcher/... ./bucket/aiven/... ./internal/gateway/... ./metadatatopic/...
test-race:
	@if command -v gcc >/dev/null || command -v cc >/dev/null; then echo "go test -race -short"; CGO_ENABLED=1 $(TEST_ENV) go test -race -short -timeout 20m -p 2 $(RACE); \
	elif [ -n "$${CI:-}" ]; then echo "no C compiler for the race detector"; exit 1; \
	else echo "no C compiler: the race detector is left out"; fi

# What a person runs before a commit: no peers, a few minutes at most.
check: lint
	go test -short -p 2 ./...

lint:
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "gofmt wants to change:"; echo "$$out"; exit 1; }
	go vet ./...

# One target a step of the house, each named for what it tests. After `make peers`: without its peer a test is skipped.

# Formats and lookups, against what a real Apache Kafka wrote and how it answered.
test-golden:
	$(GOTEST) -count=1 ./internal/remotelog/... ./internal/locate/... ./internal/golden/...
# Resolving from Apache Kafka's own metadata topic: golden sets of both layouts, a million segments, real clusters of one and three brokers.
test-metadata:
	$(GOTEST) -count=1 ./internal/remotelog/... ./internal/locate/... ./metadatatopic/...
# Aiven's layout: every object that the plug-in wrote, byte for byte, and through resolver and reader.
test-aiven:
	$(GOTEST) -count=1 ./bucket/aiven/... ./internal/aivenwrite/...
# The log on disk: batches, indexes, epochs, producer state, recovery after power failures.
test-log:
	$(GOTEST) -count=1 ./internal/batch/... ./internal/segment/... ./internal/epoch/... ./internal/producerstate/... ./internal/partlog/... ./internal/logdir/...
# Copying, retention, deletion, half-done copies.
test-tier:
	$(GOTEST) -count=1 ./internal/tier/...
# Object stores and the layout in them, the directory store and its HTTP front; that imports point one way.
test-stores:
	$(GOTEST) -count=1 ./bucket/... ./internal/layout/... ./internal/distance/... ./internal/arrows/... ./internal/fileserver/... ./internal/storedir/... ./internal/oncefile/... ./internal/freeport/... ./httpfetcher/... ./internal/storetest/...
# The library and what it is made of.
test-library:
	$(GOTEST) -count=1 . ./internal/wire/... ./internal/clientconn/... ./internal/remote/... ./internal/history/...
# The library on an Apache Kafka of one broker and of three, with nothing of ours beside it: codecs, clients, transactions, retention, elections, ACLs.
test-bare-cluster:
	$(GOTEST) -count=1 -run TestBare .
# The broker's API, held with Apache Kafka's answers; sessions, fetches, coordinators.
test-broker:
	$(GOTEST) -count=1 ./internal/broker/... ./internal/fetch/... ./internal/session/... ./internal/coord/...
# Who may come in to our broker and what they may do: every way in, every request as Apache Kafka answers it, every client, Apache Kafka's own tools.
test-security:
	$(GOTEST) -count=1 ./internal/acl/... ./internal/sasl/... ./internal/principal/... ./internal/keyfiles/... ./internal/config/...
	$(GOTEST) -count=1 -run 'WayIn|Authentication|CreatingOnTheWay|RawTokens|Reauthentication|TokenEnds|MixedUp|ReadAgain|SecurityOutlives|DamagedSecurity|EveryRequest|Authoriz|AccessSession|LocationNeedsRead|LocationInSession|RevokedBackfill|Secrets|OpenToAll' ./internal/broker
	REWIND_SECURITY_FULL=1 $(GOTEST) -count=1 -run 'Secure|SecurityTools' ./internal/clienttest
# Quotas, configurations of every kind of resource, and the admin calls, held with Apache Kafka's answers; throttled clients, quotas that outlive a restart.
test-admin:
	$(GOTEST) -count=1 ./internal/quota/... ./internal/config/...
	$(GOTEST) -count=1 -run 'Admin|Quota|Resource|Config|Throttled|Muted|LocationsCount|EveryRequest|Defaults' ./internal/broker
	$(GOTEST) -count=1 -run 'SecureFront|FrontMistakes' ./cmd/rewind
	$(GOTEST) -count=1 -v -run 'Throttled' ./internal/clienttest

# Transactions: the coordinator's state machine, what it does to logs, Apache Kafka's answers to the same requests, golden b-txn made here, clients, kills.
test-txn:
	$(GOTEST) -count=1 ./internal/coord/... ./internal/producerstate/... ./internal/batch/...
	$(GOTEST) -count=1 -run 'Trans|Txn|Golden|Prepared|Committed|Marker|Guard' ./internal/broker ./internal/partlog
	$(GOTEST) -count=1 -v -run 'Transactional|ConsumeProcessProduce' ./internal/clienttest
	$(GOTEST) -count=1 -v -run KillTransactions ./internal/killtest
# Groups of every kind: classic, consumer (KIP-848) and share groups, their coordinators, the answers of an Apache Kafka, and real clients that come, leave, are killed and
# go over from one protocol to the other.
test-groups:
	$(GOTEST) -count=1 ./internal/coord/... ./internal/share...
	$(GOTEST) -count=1 -run 'Group|Coordinator|Consumer|Share|Offset|Timers' ./internal/broker
	REWIND_GROUPS_FULL=1 $(GOTEST) -count=1 -v -run 'Group' ./internal/clienttest
# Kafka Streams and Kafka Connect on our broker, killed and restarted, and the same on an Apache Kafka.
test-streams:
	REWIND_STREAMS_FULL=1 $(GOTEST) -count=1 -v ./internal/streamstest
# Real clients and the stores' servers with our broker.
test-clients:
	$(GOTEST) -count=1 ./internal/clienttest/...
# The gateway before a real Apache Kafka: every security mode, history, a cluster whose brokers die, the command itself.
test-gateway:
	$(GOTEST) -count=1 ./internal/gateway/... ./internal/config/...
	$(GOTEST) -count=1 -run TestGateway ./cmd/rewind
# Every client in every way to come in, straight on Apache Kafka and through the gateway; go test takes a sample.
test-gateway-clients:
	REWIND_GATEWAY_FULL=1 $(TEST_ENV) go test -timeout 60m -count=1 -v -run 'Client|Group' ./internal/gatewaytest
# What can happen to a cluster of three brokers in the middle of backfills; go test takes a sample. The cluster itself first.
test-cluster:
	$(GOTEST) -count=1 ./internal/clustertest/...
	REWIND_GATEWAY_FULL=1 $(TEST_ENV) go test -timeout 60m -count=1 -v -run 'Cluster|Transactions|Access' ./internal/gatewaytest
# What doctor finds out about real clusters and stores, how our own principal connects, and the commands of docs/apache-kafka.md.
test-doctor:
	$(GOTEST) -count=1 ./internal/doctor/... ./internal/upstream/...
	$(GOTEST) -count=1 -run TestApacheKafkaPage ./cmd/rewind
# The same requests, generated for every key and version, to our broker and to Apache Kafka; go test takes a sample. REWIND_DIFF_SEED repeats a run.
test-differential:
	REWIND_DIFF_LONG=1 REWIND_DIFF_PAIRS=$${REWIND_DIFF_PAIRS:-100} $(GOTEST) -count=1 -v ./internal/difftest
	$(GOTEST) -count=1 -fuzz FuzzRequest -fuzztime 2m -run FuzzRequest ./internal/broker
# Histories of transactions, offsets and groups under kill -9, ours and Apache Kafka's, judged; go test has a short run.
test-checkers:
	REWIND_CHECK_KILLS=20 $(TEST_ENV) go test -timeout 60m -count=1 -v ./internal/checkers
# Apache Kafka's command line tools on our broker and on Apache Kafka; go test takes a sample.
test-tools:
	REWIND_TOOLS_LONG=1 $(GOTEST) -count=1 -v ./internal/tooltest

# A long soak of kill -9; make test has a short one.
test-kill:
	REWIND_KILL_ROUNDS=200 $(TEST_ENV) go test -timeout 2h -count=1 -v ./internal/killtest

# What standing between client and broker costs, against a proxy that only copies, in one run. PROXY_CHECK=check fails below the bounds: for a quiet machine.
PROXY_CHECK ?= print
bench-proxy:
	REWIND_BENCH_PROXY=$(PROXY_CHECK) go test -count=1 -v -timeout 10m -run TestProxyRatios ./internal/clientconn | grep -v '^==='

clean:
	rm -rf bin
