// Package checkers holds no code: its tests write down what clients ask of a broker and are told while it is killed with SIGKILL and started again, and hold these histories
// against what may be: transactions are atomic and in order for whoever reads read_committed, each is ended by a marker of its own, and the log's offsets and the offsets of groups are linearisable. The same
// runs are made on our broker and on an Apache Kafka; the checkers are tested with histories that break the rules. Nobody imports it.
package checkers
