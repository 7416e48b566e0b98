// Package tooltest holds no code: its tests run Apache Kafka's own command line tools on our broker and on an Apache Kafka beside it, and compare what they print. Nobody
// imports it.
package tooltest
