package txn

import "time"

// Command is what Step takes. Those with a Token lead to a reply that has it too.
type Command interface{ isCommand() }

// Init is InitProducerId; the reply is an InitResult. A transaction that is still open is aborted, and the client told to come again.
type Init struct {
	Token   any
	Timeout time.Duration
	// Expected is who the client believes to be (KIP-360). nil: it begins anew, and fences everybody before it.
	Expected *Producer
	NewID    int64 // see Output.NeedsID
}

// Add names partitions that the producer is about to write to; the reply is an AddResult. The first one begins the transaction.
type Add struct {
	Token      any
	Producer   Producer
	Partitions []TopicPartition
	Version    Version
}

// Verify asks whether partitions are part of the transaction; the reply is a VerifyResult.
type Verify struct {
	Token      any
	Producer   Producer
	Partitions []TopicPartition
}

// End is EndTxn; the reply is an EndResult.
type End struct {
	Token    any
	Producer Producer
	Commit   bool
	Version  Version
	NewID    int64 // see Output.NeedsID
}

// Complete says that the markers of the prepared transaction are written everywhere. There is no reply.
type Complete struct{ Producer Producer }

// Tick aborts a transaction that has been open for too long. There is no reply.
type Tick struct{}

// Expire forgets the id if it has not been used for so long that it may. There is no reply.
type Expire struct{}

func (*Init) isCommand()    {}
func (*Add) isCommand()     {}
func (*Verify) isCommand()  {}
func (*End) isCommand()     {}
func (Complete) isCommand() {}
func (Tick) isCommand()     {}
func (Expire) isCommand()   {}

// Result is what a reply says.
type Result interface{ failed(error) Result }

// InitResult is who the producer is from now on.
type InitResult struct {
	Err      error
	Producer Producer
}

type AddResult struct{ Err error }

// VerifyResult has an error for each partition, in the order asked. Err stands for all.
type VerifyResult struct {
	Err        error
	Partitions []error
}

// EndResult is who the producer is in its next transaction.
type EndResult struct {
	Err      error
	Producer Producer
}

func (InitResult) failed(err error) Result   { return InitResult{err, Producer{NoID, NoEpoch}} }
func (AddResult) failed(err error) Result    { return AddResult{err} }
func (VerifyResult) failed(err error) Result { return VerifyResult{Err: err} }
func (EndResult) failed(err error) Result    { return EndResult{err, Producer{NoID, NoEpoch}} }

// Reply is the answer to the command with the same Token.
type Reply struct {
	Token  any
	Result Result
}

// Markers are to be written into partitions, each as a control batch of this producer. Complete follows with the same producer.
type Markers struct {
	Producer   Producer
	Commit     bool
	Version    Version
	Partitions []TopicPartition
}

// Output is what a step leads to.
type Output struct {
	// NeedsID: nothing has happened, for a new producer id is needed. The caller gets one and takes the step again, with NewID set.
	NeedsID bool
	// Records are to be appended before anything else. If they cannot be, call Failed and forget the rest.
	Records []Record
	Replies []Reply
	Markers *Markers

	before *metadata
}

func (o *Output) reply(token any, r Result) {
	if token != nil {
		o.Replies = append(o.Replies, Reply{token, r})
	}
}
