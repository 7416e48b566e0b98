package config

// shareStateKeys are the broker's keys about what share groups keep in __share_group_state.
var shareStateKeys = []*Key{
	{
		Name: "share.coordinator.cold.partition.snapshot.interval.ms", Kind: Int, Default: "300000", check: integer(32, 1, maxInt), unit: millisUnit, bind: func(b *Broker) any { return &b.ShareColdSnapshot },
		Doc: "After how long without a change the state of a share group's partition is written anew, so that the log before it is not needed any more.",
	},
	{
		Name: "share.coordinator.snapshot.update.records.per.snapshot", Kind: Int, Default: "500", check: integer(32, 0, maxInt), bind: func(b *Broker) any { return &b.ShareUpdatesPerSnapshot },
		Doc: "After how many changes the state of a share group's partition is written as a whole.",
	},
	{
		Name: "share.coordinator.state.topic.num.partitions", Kind: Int, Default: "50", check: integer(32, 1, maxInt), bind: func(b *Broker) any { return &b.ShareStatePartitions },
		Doc: "The number of partitions of __share_group_state when it is made. It cannot be changed afterwards.",
	},
	{
		Name: "share.coordinator.state.topic.prune.interval.ms", Kind: Int, Default: "300000", check: integer(32, 1, maxInt), unit: millisUnit, bind: func(b *Broker) any { return &b.ShareStatePrune },
		Doc: "How often what is not needed any more is deleted from __share_group_state.",
	},
	{
		Name: "share.coordinator.state.topic.segment.bytes", Kind: Int, Default: "104857600", check: integer(32, 1<<20, maxInt), unit: bytesUnit, bind: func(b *Broker) any { return &b.ShareStateSegmentBytes },
		Doc: "segment.bytes of __share_group_state when it is made.",
	},
}
