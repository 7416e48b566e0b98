// Package gatewaytest holds no code: its tests run real clients against real Apache Kafka clusters whose history lies in a store only, straight, through `rewind gateway`
// as a process of its own, and through the library, while brokers are killed, leaders move, and history is deleted. The peers come from `make peers`.
package gatewaytest
