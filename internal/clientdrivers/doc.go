// Package clientdrivers makes real clients do the same session against any address of a cluster, with any security: produce to a topic, read another as a member of a
// group, commit, go away, and come back for the rest. Only tests import it. It needs what `make peers` installs.
//
// Clients in Go run in the test process. Those of other languages are the programs in the folder programs: they end with the session, except the JVM, which costs
// seconds to start and belongs to who started it.
package clientdrivers
