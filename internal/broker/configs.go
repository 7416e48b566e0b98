package broker

// configHandlers are the keys that describe and alter configurations.
func (b *Broker) configHandlers() []api { return nil }
