package clustertest

import "time"

// Options say what kind of cluster is wanted. The zero value is one broker without security, with a store that answers at once.
type Options struct {
	// IDs are the node ids, {1} if empty. Every node is a broker; the first is the controller as well: while it is down there are no elections.
	IDs []int32
	// Secure opens the listeners TLS, SASL, SASLTLS and MutualTLS beside Plaintext, and knows the users below.
	Secure bool
	// ACLs turns StandardAuthorizer on; without any ACL nothing is allowed. User Admin and whoever comes without a name (on Plaintext and TLS) may do everything.
	ACLs bool
	// RemoteLatency and RemoteStreamRate (bytes a second) are the manners of the store for each read by a broker.
	RemoteLatency    time.Duration
	RemoteStreamRate int64
	// Heap of each broker, "300m" if empty.
	Heap string
	// Racks gives brokers a broker.rack; with Config's replica.selector.class a consumer with a client.rack is sent to a follower (KIP-392).
	Racks map[int32]string
	// Config is added to every server.properties; it wins over what is there.
	Config map[string]string
	// FullJIT lets the brokers compile with both compilers, as in production. Without it they start faster and use less of the machine.
	FullJIT bool
}

func (o Options) withDefaults() Options {
	if len(o.IDs) == 0 {
		o.IDs = []int32{1}
	}
	if o.Heap == "" {
		o.Heap = "300m"
	}
	return o
}
