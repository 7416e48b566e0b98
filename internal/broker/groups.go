package broker

// groupHandlers are the keys of consumer groups and committed offsets.
func (b *Broker) groupHandlers() []api { return nil }
