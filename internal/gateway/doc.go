// Package gateway stands before a Kafka cluster and looks like it: clients connect to the gateway's addresses, everything they say is passed on to the brokers,
// and in what the brokers answer the brokers' addresses are replaced by the gateway's. The cluster and its clients stay as they are.
//
// Requests and responses are streamed; of few keys a response is taken whole, because it holds addresses (one file each, api_<key>_<name>.go). A client's
// authentication passes through untouched, so the brokers see the client's own principal.
//
// cmd/rewind imports it, and tests. A Gateway owns all its goroutines: listeners, one for each client connection besides clientconn's, the poll. Close waits for them.
package gateway
