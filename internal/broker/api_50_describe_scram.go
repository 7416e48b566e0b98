package broker

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/sasl"
)

// DescribeUserScramCredentials, version 0: which users there are, with which mechanisms and iterations. Keys and salts are not told.

func (b *Broker) handleDescribeScram(_ context.Context, c *conn, req *kmsg.DescribeUserSCRAMCredentialsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeUserSCRAMCredentialsResponse()
	if !b.allowedCluster(c, acl.Describe) {
		resp.ErrorCode, resp.ErrorMessage = errClusterAuthorization, kmsg.StringPtr(clusterDenied)
		for range req.Users { // Apache Kafka does not say whose
			resp.Results = append(resp.Results, kmsg.DescribeUserSCRAMCredentialsResponseResult{ErrorCode: resp.ErrorCode, ErrorMessage: resp.ErrorMessage})
		}
		return resp, nil
	}
	times := make(map[string]int)
	for _, u := range req.Users {
		times[u.Name]++
	}
	names := slices.Sorted(maps.Keys(times))
	if len(req.Users) == 0 {
		names = b.secrets.userNames()
	}
	for _, name := range names {
		out := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
		out.User = name
		of := b.secrets.user(name)
		switch {
		case times[name] > 1:
			out.ErrorCode, out.ErrorMessage = errDuplicateResource, kmsg.StringPtr("Cannot describe SCRAM credentials for the same user twice in a single request: "+name)
		case len(of) == 0:
			out.ErrorCode, out.ErrorMessage = errResourceNotFound, kmsg.StringPtr("Attempt to describe a user credential that does not exist: "+name)
		default:
			out.CredentialInfos = credentialInfos(of)
		}
		resp.Results = append(resp.Results, out)
	}
	return resp, nil
}

func credentialInfos(of map[int8]sasl.Credential) []kmsg.DescribeUserSCRAMCredentialsResponseResultCredentialInfo {
	var infos []kmsg.DescribeUserSCRAMCredentialsResponseResultCredentialInfo
	for _, mechanism := range slices.Sorted(maps.Keys(of)) {
		info := kmsg.NewDescribeUserSCRAMCredentialsResponseResultCredentialInfo()
		info.Mechanism, info.Iterations = mechanism, int32(of[mechanism].Iterations)
		infos = append(infos, info)
	}
	return infos
}
