package broker

import "math"

// descriptors say what the file descriptors of the process may be used for. Half of them are for clients' connections, three eighths for files of the logs that wait to
// be used again. An eighth is for neither: two for each fetch that is being answered, connections to the object store, copies to it, compaction, http.listen,
// connections that are turned away. Where files find no descriptor even so, the logs give some back; what is no file does not ask them.
type descriptors struct{ limit int }

// anyNumber stands for no limit that we know of.
const anyNumber = 1 << 20

// limitedTo takes the process's limit as the system gives it.
func limitedTo(limit uint64) descriptors { return descriptors{int(min(limit, anyNumber))} }

// logs is how many files all logs may keep open together.
func (d descriptors) logs() int { return max(16, d.limit/2-d.limit/8) }

// http is how many connections http.listen may have, with a file of the store for each: no more than the eighth that is for neither.
func (d descriptors) http() int {
	if d.limit >= anyNumber {
		return math.MaxInt
	}
	return max(8, d.limit/16)
}

// connections is how many clients may be connected at one time, whatever max.connections says.
func (d descriptors) connections() int {
	if d.limit >= anyNumber {
		return math.MaxInt
	}
	return max(1, d.limit/2)
}
