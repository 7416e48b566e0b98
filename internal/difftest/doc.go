// Package difftest holds no code: its tests send the same requests, generated for every API key and version that our broker serves, to our broker and to an
// Apache Kafka beside it, and compare the answers. What differs is in a table with its reason, which docs/differences.md has too; a difference that is not there
// fails the test, and so does one that no longer occurs. Nobody imports it.
package difftest
