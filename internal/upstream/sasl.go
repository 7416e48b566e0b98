package upstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// mechanism gives who authenticates, and as whom.
func mechanism(p map[string]string) (sasl.Mechanism, string, error) {
	name := p["sasl.mechanism"]
	var module string
	switch name {
	case "PLAIN":
		module = plainModule
	case "SCRAM-SHA-256", "SCRAM-SHA-512":
		module = scramModule
	case "OAUTHBEARER":
		module = oauthModule
	case "", "GSSAPI": // which is Kafka's default
		return nil, "", errors.New("sasl.mechanism: " + gssapi)
	default:
		return nil, "", fmt.Errorf("sasl.mechanism %q: must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER", name)
	}
	login, err := loginOf(p, module)
	if err != nil {
		return nil, "", err
	}
	if name == "OAUTHBEARER" {
		return bearer(p, login)
	}
	user, password := login["username"], login["password"]
	if user == "" || password == "" {
		return nil, "", errors.New("sasl.jaas.config: username and password are needed")
	}
	if name == "PLAIN" {
		return plain.Auth{User: user, Pass: password}.AsMechanism(), user, nil
	}
	auth := func(context.Context) (scram.Auth, error) {
		return scram.Auth{User: user, Pass: password, IsToken: login["tokenauth"] == "true"}, nil
	}
	if name == "SCRAM-SHA-256" {
		return scram.Sha256(auth), user, nil
	}
	return scram.Sha512(auth), user, nil
}

// loginOf is the JAAS line's options, or what sasl.username and sasl.password say in its place.
func loginOf(p map[string]string, module string) (map[string]string, error) {
	line, user, password := p["sasl.jaas.config"], p["sasl.username"], p["sasl.password"]
	if line == "" {
		return map[string]string{"username": user, "password": password}, nil
	}
	if user != "" || password != "" {
		return nil, errors.New("sasl.jaas.config and sasl.username or sasl.password: give one or the other")
	}
	got, options, err := parseJAAS(line)
	if err != nil {
		return nil, fmt.Errorf("sasl.jaas.config: %w", err)
	}
	if got != module {
		return nil, fmt.Errorf("sasl.jaas.config: login module %s does not belong to sasl.mechanism=%s, %s does", got, p["sasl.mechanism"], module)
	}
	return options, nil
}
