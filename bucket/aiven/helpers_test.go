package aiven

// forgetIdle drops what the cache keeps, so that the next reader reads the store.
func (c *chunkCache) forgetIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trimLocked(c.limit + 1)
}
