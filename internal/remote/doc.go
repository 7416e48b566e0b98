// Package remote reads a partition's history out of segments that lie in an object store. It is the one reading path of the broker and
// the client library: whoever knows where an offset lies (a ResolveFunc) gets whole, checked record batches back, in order, at the speed of
// the store.
//
// Who may import it: the broker, the root package's dialer, internal/locate (which makes Ranges), and the commands. It
// knows nothing of the Kafka protocol beyond record batches, and nothing of any particular store.
//
// The way of a byte:
//
//	Source.ReadRange ─► chunk (memory from the Budget, filled by one GET, kept in the Cache if there is one)
//	      chunk ─► piece of a stream (one Range being read, pieces in order of position)
//	            piece ─► check (CRC, order, bounds of every batch, no copying)
//	                  batch ─► Read (slices of chunk memory, with a Release)
//
// Goroutines: a PartitionReader owns one goroutine, its pump, plus one for each GET in flight and one for a resolve; its Close waits for all of them.
// With a Cache the GETs belong to the Cache instead (a reader that goes away does not throw a download away); Cache.Close waits for those. A Pool owns one
// goroutine that closes idle readers. A Reader owns none, but its Close closes every PartitionReader that is still open.
//
// # Memory, and why it cannot deadlock
//
// All memory for bytes of segments is granted by one Budget. A reader asks in two ways. TryAcquire is for everything that only makes reading faster: it
// never waits and fails while anybody waits. Acquire waits in a queue, first come first served, and is used only for the bytes
// without which a reader can deliver nothing at all. Before a reader calls Acquire it gives back every chunk that it holds (the beginning of a batch
// that was cut by the chunk's end is kept: up to maxTail bytes are copied aside, into memory that is no part of the grants and a sixteenth of the
// budget at most for all readers together; what is larger, or finds no room, is fetched again). So nobody waits while holding.
//
// The invariant: whatever is granted is given back, or somebody has got ahead with it, within a time that depends on nobody who waits. What is held is always one of these:
//
//   - bytes in flight, which end with the chunk's deadline;
//   - checked batches of a reader whose consumer comes and takes them;
//   - what is kept for a consumer that does not come: checked batches, or the beginning of a batch of which the rest is asked for when it comes (keepsLocked). It
//     is stalled after StallAfter, and once somebody is short of memory it gives up all it holds and fetches it again when its consumer is back;
//   - the beginning of a batch whose source is being resolved anew, which ends with the resolve's deadline;
//   - chunks that only the Cache holds: dropped as soon as somebody is short;
//   - bytes lent to a consumer until it calls Release. That is the consumer's duty: it must not wait for another reader's bytes in between.
//
// So the head of the queue is served, and after it the next: every reader that waits is given memory. That it delivers with it needs one thing more, for a consumer that
// always comes a little after what was fetched for it was given to others would get nothing as long as they want some: each time that this happens to a reader its consumer
// has twice as long (graceLocked), up to maxSheds times.
//
// How long the queue is, is another matter: an owner that has somewhere else to read from sets Patience, and what finds no memory within it ends with ErrCrowded. Chunks
// become smaller where many read (chunkBytes), so that most have one at a time. And what readers take beside their chunks, beyond the first few, comes out of the budget
// (readerCost): TryOpen refuses those for whom it would be more than half.
//
// What is granted comes in blocks of one size, which the Budget keeps and gives out again, so that the process holds what it was granted and not as much again in
// garbage: a block is made only when none that was given back is left. When nobody reads the blocks are the garbage collector's, and can be had back until it comes.
//
// A request larger than the whole budget (a batch larger than the budget) is granted when nothing else is in use: an over-draft for one batch at a time, of maxBatch at most.
package remote
