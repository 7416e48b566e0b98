package broker

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/sasl"
)

// AlterUserScramCredentials, version 0. A credential is good, or not any more, for whoever authenticates after the answer; who is in stays in, as in Apache
// Kafka, until the session ends.

// scramAlteration gathers what a request asks for each user; a user that is named twice is refused.
type scramAlteration struct {
	changes map[string]scramChange
	refused map[string]configError
}

func (a *scramAlteration) add(user string, c scramChange, refused *configError) {
	if _, done := a.refused[user]; done {
		return
	}
	if _, twice := a.changes[user]; twice {
		delete(a.changes, user)
		refused = &configError{errDuplicateResource, "A user credential cannot be altered twice in the same request"}
	}
	if refused != nil {
		a.refused[user] = *refused
		return
	}
	a.changes[user] = c
}

func (b *Broker) handleAlterScram(_ context.Context, c *conn, req *kmsg.AlterUserSCRAMCredentialsRequest) (kmsg.Response, error) {
	a := scramAlteration{changes: make(map[string]scramChange), refused: make(map[string]configError)}
	if !b.allowedCluster(c, acl.Alter) {
		for _, user := range alteredUsers(req) {
			a.refused[user] = configError{errClusterAuthorization, clusterDenied}
		}
		return a.response(), nil
	}
	for i := range req.Deletions {
		d := &req.Deletions[i]
		err := checkScram(d.Name, d.Mechanism)
		if _, there := b.secrets.user(d.Name)[d.Mechanism]; err == nil && !there {
			err = &configError{errResourceNotFound, "Attempt to delete a user credential that does not exist"}
		}
		a.add(d.Name, scramChange{user: d.Name, mechanism: d.Mechanism}, err)
	}
	for i := range req.Upsertions {
		u := &req.Upsertions[i]
		change, err := upsertion(u)
		a.add(u.Name, change, err)
	}
	if len(a.changes) == 0 {
		return a.response(), nil
	}
	changes := slices.Collect(maps.Values(a.changes))
	if err := b.secrets.alterUsers(changes); err != nil {
		b.log.Error("keeping SCRAM credentials", "err", err)
		for user := range a.changes {
			a.refused[user] = configError{errStorage, "the credential could not be kept"}
		}
		return a.response(), nil
	}
	for _, change := range changes {
		b.log.Info("SCRAM credential altered", "user", change.user, "deleted", change.credential == nil, "by", c.who.Principal, "peer", c.peer)
	}
	return a.response(), nil
}

func alteredUsers(req *kmsg.AlterUserSCRAMCredentialsRequest) []string {
	var users []string
	for i := range req.Deletions {
		users = append(users, req.Deletions[i].Name)
	}
	for i := range req.Upsertions {
		users = append(users, req.Upsertions[i].Name)
	}
	return users
}

func (a *scramAlteration) response() kmsg.Response {
	resp := kmsg.NewPtrAlterUserSCRAMCredentialsResponse()
	for _, user := range slices.Sorted(maps.Keys(a.changes)) {
		if _, refused := a.refused[user]; !refused {
			resp.Results = append(resp.Results, kmsg.AlterUserSCRAMCredentialsResponseResult{User: user})
		}
	}
	for _, user := range slices.Sorted(maps.Keys(a.refused)) {
		e := a.refused[user]
		resp.Results = append(resp.Results, kmsg.AlterUserSCRAMCredentialsResponseResult{User: user, ErrorCode: e.code, ErrorMessage: &e.message})
	}
	return resp
}

func checkScram(user string, mechanism int8) *configError {
	if user == "" {
		return &configError{errUnacceptableCredential, "Username must not be empty"}
	}
	if !utf8.ValidString(user) { // it would be another one after the next start
		return &configError{errUnacceptableCredential, "Username should be UTF-8"}
	}
	if _, known := sasl.ScramHashOf(mechanism); !known {
		return &configError{errUnsupportedSaslMechanism, "Unknown SCRAM mechanism"}
	}
	return nil
}

// maxSalt bounds what a client may have kept for it.
const maxSalt = 1024

func upsertion(u *kmsg.AlterUserSCRAMCredentialsRequestUpsertion) (scramChange, *configError) {
	if err := checkScram(u.Name, u.Mechanism); err != nil {
		return scramChange{}, err
	}
	switch {
	case u.Iterations < sasl.MinIterations:
		return scramChange{}, &configError{errUnacceptableCredential, "Too few iterations"}
	case u.Iterations > sasl.MaxIterations:
		return scramChange{}, &configError{errUnacceptableCredential, "Too many iterations"}
	case len(u.SaltedPassword) == 0:
		return scramChange{}, &configError{errUnacceptableCredential, "The salted password must not be empty"}
	case len(u.Salt) > maxSalt || len(u.SaltedPassword) > maxSalt:
		return scramChange{}, &configError{errUnacceptableCredential, "Salt or salted password too long"}
	}
	h, _ := sasl.ScramHashOf(u.Mechanism)
	c := h.FromSaltedPassword(bytes.Clone(u.Salt), u.SaltedPassword, int(u.Iterations))
	return scramChange{user: u.Name, mechanism: u.Mechanism, credential: &c}, nil
}
