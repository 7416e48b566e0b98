// Package streamstest holds no code: its tests run Kafka Streams and Kafka Connect, processes of their own, on our broker, a process too, and kill them all in turn. What
// they have made of their input must be what the input says, exactly once. The long version does the same on an Apache Kafka. The peers come from `make peers`.
package streamstest
