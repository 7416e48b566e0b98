// Package broker is one Kafka node: it joins the wire, the logs, the tiers and the coordinators. Each API key has a file of its own,
// api_<key>_<name>.go, which opens with the versions served and where the answer knowingly differs from Apache Kafka's. Error codes are assigned
// in errors.go alone.
//
// Commands and tests import it, nothing else does.
//
// Goroutines: a Broker owns its listener, its connections (three each: reader, handler, writer) and its background tasks; Close waits for all.
package broker
