package broker

// clusterHandlers are the keys about leaders, replicas, features and controllers, as one node answers them, and those of what is not there.
func (b *Broker) clusterHandlers() []api {
	return []api{
		on(1, 2, b.handleAlterReplicaLogDirs),
		on(1, 3, b.handleCreateDelegationToken),
		on(1, 2, b.handleRenewDelegationToken),
		on(1, 2, b.handleExpireDelegationToken),
		on(1, 3, b.handleDescribeDelegationTokens),
		on(0, 2, b.handleElectLeaders),
		on(0, 1, b.handleAlterReassignments),
		on(0, 0, b.handleListReassignments),
		on(0, 2, b.handleDescribeQuorum),
		on(0, 2, b.handleUpdateFeatures),
		on(0, 0, b.handleUnregisterBroker),
		unlisted(on(0, 0, b.handleGetTelemetrySubscriptions)),
		unlisted(on(0, 0, b.handlePushTelemetry)),
		on(0, 1, b.handleAddRaftVoter),
		on(0, 0, b.handleRemoveRaftVoter),
		on(0, 0, b.handleUnregisterController),
	}
}

// unlisted is a key that is served, and that ApiVersions does not tell of.
func unlisted(a api) api {
	a.unlisted = true
	return a
}
