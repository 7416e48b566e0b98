package history

import "time"

// brokerPatience is how much longer than a fetch may lie there a broker is waited for that says nothing: twice what Apache Kafka's clients do. They cannot notice it here, for
// they get answers, without what is the broker's, for ever.
const brokerPatience = time.Minute

// noteSlow takes note of requests that a broker may answer after minutes: a fetch behind one is late for a good reason, and whoever sent it notices what does not come.
func (c *Conn) noteSlow(key int16) {
	switch key {
	case keyFetch, keyMetadata, keySaslHandshake, keySaslAuthenticate, 2, 10, 18, 23, 60, 71, 72, 75:
		// Offsets, coordinators, versions, epochs, the cluster, telemetry and partitions: all that the connections of consumers carry that are for fetches.
		return
	}
	c.slow.Store(true)
}

// throttledLocked takes note of a throttle time: the client is to be told, and the broker lets the connection lie for so long (KIP-219). c.mu is held.
func (c *Conn) throttledLocked(millis int32) {
	c.throttle = max(c.throttle, millis)
	if until := time.Now().Add(time.Duration(millis) * time.Millisecond); millis > 0 && until.After(c.muted) {
		c.muted = until
	}
}

// watchBroker ends the connection, unless it is stopped before, when the broker has not answered for too long.
func (c *Conn) watchBroker(wait time.Duration) (stop func()) {
	if c.slow.Load() {
		return func() {}
	}
	c.mu.Lock()
	patience := max(wait, time.Until(c.muted), 0) + c.h.patience
	c.mu.Unlock()
	timer := time.AfterFunc(patience, func() {
		c.h.logger.Warn("a broker does not answer; ending the connection, for its client to find another", "broker", c.peer.Addr.String(), "after", patience)
		c.carrier.Close()
	})
	return func() { timer.Stop() }
}
