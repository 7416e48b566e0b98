// Package clustertest runs real Apache Kafka clusters for tests, with tiered storage on a directory: one broker or several, with any node ids, with and without
// security. Only tests import it. It needs what `make peers` installs. A cluster belongs to the test that started it and ends with it; each broker is a child
// process that dies with the test process.
//
//	c := clustertest.Start(t, clustertest.Options{IDs: []int32{400, 7, 100}})   // about six seconds; one broker takes three
//	c.Load(t, "orders", 2, "zstd", 100)              // a tiered topic of which all but the last record of each partition is in the store only
//	gateway(c.Bootstrap(clustertest.Plaintext), c.Store())                      // the store is a directory in layout kafka
//	want := c.Records(t, "orders", false)            // what the brokers give, markers of transactions included; true is read_committed
//	got := c.Read(t, gatewayAddrs, "orders", false)  // the same through anything that leads there, with more kgo options if need be
//	if d := clustertest.Difference(want, got); d != "" { t.Error(d) }
//	c.Meters(t, "orders")                            // bytes that the brokers have sent and have read remotely
//
// # What can happen to a cluster
//
// Kill, Stop, Restart, Pause, Resume (brokers; the first is the controller as well, so without it there are no elections), NextLeader and MoveLeader,
// DeleteRecords, Delete, Configure (retention), Fork (an unclean election after which the store has overlapping segments of two histories), and
// LoadTransactions (aborted ones over segments and over the edge between the tiers, by Apache Kafka's own producer; Transactions makes others).
//
// # Security
//
// Options.Secure opens more listeners on each broker: Plaintext, TLS, SASL, SASLTLS and MutualTLS, each with a bootstrap address of its own. The SASL ones know users Admin,
// Alice and Bob by every mechanism. A Login says how a client comes in, and KgoOptions and JavaProperties what it needs for that. Certificates are the Authority's, which a test
// may have sign more. Options.ACLs turns StandardAuthorizer on, and Allow and Revoke are its rules: Admin and whoever has no name (Plaintext, TLS) may do everything, the others what
// they were allowed.
package clustertest
