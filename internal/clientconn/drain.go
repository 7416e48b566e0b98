package clientconn

// Drain lets the connection end by itself: no request is taken any more, what is owed is finished, then both ends are closed and Run returns. It does not
// wait, and may be called more than once and before Run, which must follow. A connection that is no longer looked into (see opaque) never drains: Close it after a while.
func (c *Conn) Drain() {
	c.life.drain()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.draining && !c.ending {
		c.draining = true
		c.running.Go(func() { c.end(c.awaitDrained()) })
	}
}
