package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// RemoveRaftVoter, version 0. See AddRaftVoter.

func (b *Broker) handleRemoveRaftVoter(_ context.Context, c *conn, req *kmsg.RemoveRaftVoterRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrRemoveRaftVoterResponse()
	resp.ErrorCode, resp.ErrorMessage = b.alterVoters(c, req.ClusterID)
	if resp.ErrorCode == errInvalidRequest && req.VoterID >= 0 && req.VoterDirectoryID != [16]byte{} {
		resp.ErrorCode, resp.ErrorMessage = errVoterNotFound, kmsg.StringPtr("no controller has this id")
	}
	return resp, nil
}
