// Package tier moves closed segments of tiered partitions to remote storage and takes them away again: copy, total retention, deletion of topics, and the
// recovery of whatever a crash cut off. It also holds the broker's side of `__remote_log_metadata`: MetadataLog writes the records that say what is where.
//
// The order that everything rests on, for a copy:
//
//  1. COPY_SEGMENT_STARTED is on stable storage, with the id under which the objects will lie;
//  2. the store takes the objects, whole and checked;
//  3. COPY_SEGMENT_FINISHED is on stable storage;
//  4. local retention may delete the local segment.
//
// and for a deletion: the log start moves, DELETE_SEGMENT_STARTED is on stable storage, the objects go, DELETE_SEGMENT_FINISHED. A crash between any two
// leaves a record that names the objects concerned, so the records alone tell what is to be finished or cleaned, and no listing of the store is needed.
//
// The broker imports it, nothing else does. A Tier owns its worker goroutines and Close waits for them; a MetadataLog has none.
package tier
