package upstream

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// tokenTimeout bounds the waiting for a token. The context that kgo gives is its client's: it ends with the client only.
const tokenTimeout = 30 * time.Second

// bearer gets its tokens from an endpoint with a client id and a secret, from a file, or, as Kafka's own development mode, makes unsecured ones.
func bearer(p, login map[string]string) (sasl.Mechanism, string, error) {
	token, user, err := tokens(p, login)
	if err != nil {
		return nil, "", err
	}
	extensions := make(map[string]string)
	for k, v := range login {
		if name, ok := strings.CutPrefix(k, "extension_"); ok {
			extensions[name] = v
		}
	}
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		t, err := token(ctx)
		return oauth.Auth{Token: t, Extensions: extensions}, err
	}), user, nil
}

func tokens(p, login map[string]string) (token func(context.Context) (string, error), user string, err error) {
	if subject := login["unsecuredLoginStringClaim_sub"]; subject != "" {
		return func(context.Context) (string, error) { return unsecured(subject, time.Now()) }, subject, nil
	}
	const key = "sasl.oauthbearer.token.endpoint.url"
	endpoint, err := url.Parse(p[key])
	if err != nil {
		return nil, "", errors.New(key + ": not a URL")
	}
	switch endpoint.Scheme {
	case "file":
		return func(context.Context) (string, error) {
			t, err := os.ReadFile(endpoint.Path)
			return strings.TrimSpace(string(t)), err
		}, "", nil
	case "https", "http":
	default:
		return nil, "", errors.New(key + " is needed: https://..., or file:///... with a token in it")
	}
	c := clientcredentials.Config{TokenURL: endpoint.String(), ClientID: first(p["sasl.oauthbearer.client.credentials.client.id"], login["clientId"]),
		ClientSecret: first(p["sasl.oauthbearer.client.credentials.client.secret"], login["clientSecret"])}
	if scope := first(p["sasl.oauthbearer.scope"], login["scope"]); scope != "" {
		c.Scopes = strings.Fields(scope)
	}
	if c.ClientID == "" || c.ClientSecret == "" {
		return nil, "", errors.New("sasl.oauthbearer.client.credentials.client.id and .client.secret are needed, or clientId and clientSecret in sasl.jaas.config")
	}
	return func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
		defer cancel()
		t, err := c.Token(ctx)
		if err != nil {
			return "", tokenError(endpoint, err)
		}
		return t.AccessToken, nil
	}, c.ClientID, nil
}

// tokenError keeps what the endpoint said in its own words out of logs: it may repeat what was sent.
func tokenError(endpoint *url.URL, err error) error {
	var refusal *oauth2.RetrieveError
	if errors.As(err, &refusal) && refusal.Response != nil {
		return fmt.Errorf("token endpoint %s answers %s %s", endpoint.Redacted(), refusal.Response.Status, refusal.ErrorCode)
	}
	return fmt.Errorf("token endpoint: %w", err)
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// unsecured is RFC 7515's unsecured JWS, which Kafka takes in development only.
func unsecured(subject string, now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{"sub": subject, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()})
	if err != nil {
		return "", err
	}
	e := base64.RawURLEncoding
	return e.EncodeToString([]byte(`{"alg":"none"}`)) + "." + e.EncodeToString(claims) + ".", nil
}
