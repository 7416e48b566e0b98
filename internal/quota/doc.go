// Package quota holds what clients may use of a broker, and what they have used: bytes produced, bytes fetched, time of requests, changes of topics, and
// connections. The names, the entities (user, client id, address, and the default of each) and which quota goes before which are Apache Kafka's.
//
// A quota is kept by a bucket that leaks at the quota's rate and holds as much as the quota allows in its windows. Apache Kafka keeps a rate over windows instead;
// the time that a client is told to wait comes to the same, but for one thing: what was used far above the quota is not forgotten when the windows have passed.
//
// internal/broker imports it. It owns no goroutine, reads no clock and does no I/O; what is in it may be used by several goroutines.
package quota
