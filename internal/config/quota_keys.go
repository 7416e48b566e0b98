package config

// quotaKeys say over which time clients' quotas are kept. The quotas themselves are set with AlterClientQuotas.
var quotaKeys = []*Key{
	{
		Name: "controller.quota.window.num", Kind: Int, Default: "11", check: integer(32, 1, 10_000), bind: func(b *Broker) any { return &b.ControllerQuotaWindows },
		Doc: "As quota.window.num, for controller_mutation_rate: so many windows' worth may be made or deleted at once.",
	},
	{
		Name: "controller.quota.window.size.seconds", Kind: Int, Default: "1", check: integer(32, 1, 100_000), bind: func(b *Broker) any { return (*seconds)(&b.ControllerQuotaWindow) },
		Doc: "The length of one window of controller_mutation_rate.",
	},
	{
		Name: "quota.window.num", Kind: Int, Default: "11", check: integer(32, 1, 10_000), bind: func(b *Broker) any { return &b.QuotaWindows },
		Doc: "Over how many windows clients' quotas are kept. A client may use at once what its quota gives it in all of them but one.",
	},
	{
		Name: "quota.window.size.seconds", Kind: Int, Default: "1", check: integer(32, 1, 100_000), bind: func(b *Broker) any { return (*seconds)(&b.QuotaWindow) },
		Doc: "The length of one window of clients' quotas. For time of requests and for connections nobody waits longer than this at a time.",
	},
}
