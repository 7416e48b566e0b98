// Package wire holds what travels between Kafka's clients and us at the level of frames: reading them under a limit, request and response
// headers, the tagged fields of KIP-1248 and KIP-1178, and a Fetch response that is written without copying a record byte. Message bodies are
// franz-go's kmsg; only what kmsg does not know, or would copy, is coded here. docs/format/wire.md is its page.
//
// Broker, library and tools may import it. It keeps no state and starts no goroutine.
package wire

import "errors"

var (
	// ErrFrameTooLarge: the peer announced a frame above the limit. The text names size and limit, and says so if the bytes look like another protocol.
	ErrFrameTooLarge = errors.New("frame is too large")
	// ErrMalformed: the bytes are not what the protocol says. The connection cannot be trusted any further.
	ErrMalformed = errors.New("malformed message")
)
