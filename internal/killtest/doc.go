// Package killtest holds no code: its tests run the real broker, as its own process, under the load of real clients, kill it with SIGKILL at random
// points, over and over, and then hold the log, the store and the clients' own books against each other. Nobody imports it.
package killtest
