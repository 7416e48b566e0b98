// Package clienttest holds no code: its tests run the real binary as a process of its own, and real clients against it. Every producer writes every codec
// into tiered topics, and when the history has left the local log every consumer, through the broker or directly, must read the same records. The peers
// come from `make peers`.
package clienttest
