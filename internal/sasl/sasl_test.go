package sasl

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/twmb/franz-go/pkg/sasl"
	kgoscram "github.com/twmb/franz-go/pkg/sasl/scram"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var users = map[string]string{"alice": "secret", "eve": "e=v,e"}

func password(user string) (string, bool) { p, ok := users[user]; return p, ok }

func TestPlain(t *testing.T) {
	for _, x := range []struct {
		message, user, text string
	}{
		{"\x00alice\x00secret", "alice", ""},
		{"alice\x00alice\x00secret", "alice", ""},
		{"bob\x00alice\x00secret", "", "different from username"},
		{"\x00alice\x00wrong", "", "Invalid username or password"},
		{"\x00alice\x00secret2", "", "Invalid username or password"},
		{"\x00bob\x00secret", "", "Invalid username or password"},
		{"\x00bob\x00", "", "password not specified"},
		{"\x00\x00secret", "", "username not specified"},
		{"alice\x00secret", "", "expected 3 tokens, got 2"},
		{"\x00a\x00b\x00c\x00d", "", "expected 3 tokens, got 4"},
		{"", "", "expected 3 tokens, got 1"},
	} {
		e := Plain(password).Start()
		_, done, err := e.Step([]byte(x.message))
		var refused *Refused
		if x.user != "" {
			if err != nil || !done || e.Identity().User != x.user {
				t.Errorf("%q: %t, %v, %+v", x.message, done, err, e.Identity())
			}
		} else if done || !errors.As(err, &refused) || !errors.Is(err, ErrFailed) || !strings.Contains(refused.Text, x.text) || e.Identity().User != "" {
			t.Errorf("%q: %t, %v", x.message, done, err)
		}
		if _, done, err := e.Step([]byte("\x00alice\x00secret")); done || err == nil {
			t.Errorf("%q: a second attempt in one exchange", x.message)
		}
	}
}

// scramPair gives the client's and the server's side.
func scramPair(t *testing.T, h *ScramHash, user, pass string, known map[string]Credential) (sasl.Session, []byte, Exchange) {
	t.Helper()
	auth := kgoscram.Auth{User: user, Pass: pass}
	m := auth.AsSha256Mechanism()
	if h == SHA512 {
		m = auth.AsSha512Mechanism()
	}
	session, first, err := m.Authenticate(t.Context(), "h")
	if err != nil {
		t.Fatal(err)
	}
	server, err := h.Scram(func(user string) (Credential, bool) { c, ok := known[user]; return c, ok })
	if err != nil {
		t.Fatal(err)
	}
	return session, first, server.Start()
}

func TestScram(t *testing.T) {
	for _, h := range []*ScramHash{SHA256, SHA512} {
		known := make(map[string]Credential)
		for user, pass := range users {
			c, err := h.Credential(pass, MinIterations)
			if err != nil {
				t.Fatal(err)
			}
			known[user] = c
		}
		odd, err := h.Credential("p", MinIterations)
		if err != nil {
			t.Fatal(err)
		}
		known["a,b=c"] = odd
		for _, x := range []struct {
			user, pass string
			want       bool
		}{{"alice", "secret", true}, {"eve", "e=v,e", true}, {"a,b=c", "p", true}, {"alice", "secreT", false}, {"nobody", "secret", false}} {
			session, first, server := scramPair(t, h, x.user, x.pass, known)
			answer, done, err := server.Step(first)
			if err != nil || done {
				t.Fatalf("%s %s: first step: %t, %v", h.Name, x.user, done, err)
			}
			_, final, err := session.Challenge(answer)
			if err != nil {
				t.Fatal(err)
			}
			answer, done, err = server.Step(final)
			if x.want != (err == nil) || x.want != done {
				t.Fatalf("%s %s: %t, %v", h.Name, x.user, done, err)
			}
			if !x.want {
				if !errors.Is(err, ErrFailed) || answer != nil {
					t.Errorf("%v, %q", err, answer)
				}
				continue
			}
			if ok, _, err := session.Challenge(answer); err != nil || !ok { // the server has shown that it knows the user
				t.Errorf("%s %s: the client does not believe: %v", h.Name, x.user, err)
			}
			if server.Identity().User != x.user {
				t.Errorf("%+v", server.Identity())
			}
		}
	}
}

// Whether a user is there cannot be told from the first answer: asked twice, an unknown one has the same salt.
func TestScramHidesUsers(t *testing.T) {
	server, err := SHA256.Scram(func(string) (Credential, bool) { return Credential{}, false })
	if err != nil {
		t.Fatal(err)
	}
	salt := func(user string) string {
		answer, _, err := server.Start().Step([]byte("n,,n=" + user + ",r=abcdef"))
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(string(answer), ",")
		if len(parts) != 3 || parts[2] != "i=4096" {
			t.Fatalf("%s", answer)
		}
		if raw, err := base64.StdEncoding.DecodeString(parts[1][2:]); err != nil || len(raw) != 20 {
			t.Errorf("a salt unlike others: %s", parts[1])
		}
		return parts[1]
	}
	if salt("x") != salt("x") || salt("x") == salt("y") {
		t.Error("the salt of an unknown user is not its own")
	}
	for _, bad := range []string{"", "n", "n,,", "n,a=bob,n=alice,r=x", "p=tls-unique,,n=a,r=b", "y,,m=x,n=a,r=b", strings.Repeat("x", maxMessage+1)} {
		if _, done, err := server.Start().Step([]byte(bad)); err == nil || done {
			t.Errorf("%.30q: %t, %v", bad, done, err)
		}
	}
}

// Credentials have the sizes that Apache Kafka's have, and RFC 7677's example gives its keys.
func TestCredentialOfSaltedPassword(t *testing.T) {
	c, err := SHA512.Credential("pass", 8192)
	if err != nil || len(c.Salt) != 20 || len(c.StoredKey) != 64 || len(c.ServerKey) != 64 || c.Iterations != 8192 {
		t.Errorf("%d %d %d, %v", len(c.Salt), len(c.StoredKey), len(c.ServerKey), err)
	}
	// User "user", password "pencil".
	salt, _ := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	salted, _ := base64.StdEncoding.DecodeString("xKSVEDI6tPlSysH6mUQZOeeOp01r6B3fcJbodRPcYV0=")
	got := SHA256.FromSaltedPassword(salt, salted, 4096)
	if k := base64.StdEncoding.EncodeToString(got.StoredKey); k != "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=" {
		t.Errorf("stored key %s", k)
	}
	if k := base64.StdEncoding.EncodeToString(got.ServerKey); k != "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=" {
		t.Errorf("server key %s", k)
	}
}

type tokens struct {
	key    *ecdsa.PrivateKey
	signer jose.Signer
	set    []jose.JSONWebKey
}

func newTokens(t testing.TB, id string) *tokens {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &tokens{key, s, []jose.JSONWebKey{{Key: key.Public(), KeyID: id, Algorithm: "ES256", Use: "sig"}}}
}

// Find implements KeySource.
func (k *tokens) Find(id string) (found []jose.JSONWebKey) {
	for _, key := range k.set {
		if id == "" || key.KeyID == id {
			found = append(found, key)
		}
	}
	return found
}

func (k *tokens) token(t testing.TB, claims map[string]any) string {
	t.Helper()
	text, err := jwt.Signed(k.signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func bearer(token string) string { return "n,,\x01auth=Bearer " + token + "\x01\x01" }

func TestOAuthBearer(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	k, foreign := newTokens(t, "k"), newTokens(t, "k")
	rules := TokenRules{Issuer: "i", Audience: []string{"a", "b"}, ClockSkew: 30 * time.Second}
	good := func(change func(map[string]any)) map[string]any {
		c := map[string]any{"sub": "alice", "iss": "i", "aud": "b", "exp": now.Unix() + 60, "iat": now.Unix()}
		if change != nil {
			change(c)
		}
		return c
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"alice","iss":"i","aud":"b","exp":9999999999}`)) + "."
	whole := k.token(t, good(nil))
	set := func(name string, v any) map[string]any { return good(func(c map[string]any) { c[name] = v }) }
	without := func(name string) map[string]any { return good(func(c map[string]any) { delete(c, name) }) }
	hmacSigned := func() string {
		// The public key's bytes as a shared secret: what a careless verifier falls for.
		pem, err := json.Marshal(k.set[0])
		if err != nil {
			t.Fatal(err)
		}
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: pem}, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := jwt.Signed(s).Claims(good(nil)).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}()
	for _, x := range []struct {
		name, token string
		want        bool
	}{
		{"good", whole, true},
		{"several audiences", k.token(t, set("aud", []string{"x", "a"})), true},
		{"a little too old", k.token(t, set("exp", now.Unix()-20)), true},
		{"too old", k.token(t, set("exp", now.Unix()-31)), false},
		{"not yet", k.token(t, set("nbf", now.Unix()+31)), false},
		{"another issuer", k.token(t, set("iss", "j")), false},
		{"another audience", k.token(t, set("aud", "c")), false},
		{"no audience", k.token(t, without("aud")), false},
		{"no end", k.token(t, without("exp")), false},
		{"no subject", k.token(t, without("sub")), false},
		{"a subject that is no name", k.token(t, set("sub", 7)), false},
		{"a blank subject", k.token(t, set("sub", " ")), false},
		{"signed by another", foreign.token(t, good(nil)), false},
		{"no signature", none, false},
		{"a cut signature", whole[:len(whole)-4], false},
		{"signed with the public key", hmacSigned, false},
		{"garbage", "a.b.c", false},
	} {
		e := OAuthBearer(k, rules, func() time.Time { return now }).Start()
		answer, done, err := e.Step([]byte(bearer(x.token)))
		if err != nil || done != x.want {
			t.Errorf("%s: %t, %v", x.name, done, err)
			continue
		}
		if x.want {
			if id := e.Identity(); id.User != "alice" || id.Expires.IsZero() {
				t.Errorf("%s: %+v", x.name, id)
			}
			continue
		}
		if string(answer) != invalidToken {
			t.Errorf("%s: %s", x.name, answer)
		}
		if _, done, err := e.Step([]byte(separator)); done || !errors.Is(err, ErrFailed) || err.Error() != invalidToken {
			t.Errorf("%s: then %t, %v", x.name, done, err)
		}
	}
	mapped := OAuthBearer(k, TokenRules{SubjectClaim: "user"}, func() time.Time { return now }).Start()
	if _, done, err := mapped.Step([]byte("n,a=bob,\x01x=y\x01auth=bearer " + k.token(t, set("user", "bob")) + "\x01\x01")); err != nil || !done || mapped.Identity().User != "bob" {
		t.Errorf("%t, %v, %+v", done, err, mapped.Identity())
	}
	for _, bad := range []string{"", "n,,", "n,,\x01\x01", "y,,\x01auth=Bearer x\x01\x01", "n,b=x,\x01auth=Bearer x\x01\x01", "n,,\x01auth=Basic x\x01\x01", "n,,\x01auth=Bearer\x01\x01", "n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01", "n,,\x01auth=Bearer x"} {
		if _, done, err := OAuthBearer(k, rules, time.Now).Start().Step([]byte(bad)); done || !errors.Is(err, ErrFailed) {
			t.Errorf("%q: %t, %v", bad, done, err)
		}
	}
	other := OAuthBearer(k, rules, func() time.Time { return now }).Start()
	if _, done, err := other.Step([]byte("n,a=bob,\x01auth=Bearer " + whole + "\x01\x01")); done || err == nil {
		t.Error("alice's token was good for bob")
	}
}

func keySet(t testing.TB, keys ...jose.JSONWebKey) []byte {
	t.Helper()
	b, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseKeySet(t *testing.T) {
	k := newTokens(t, "k")
	set, err := ParseKeySet(keySet(t, k.set[0], jose.JSONWebKey{Key: k.key, KeyID: "private"}, jose.JSONWebKey{Key: []byte("a shared secret"), KeyID: "shared"}))
	if err != nil || len(set) != 1 || set[0].KeyID != "k" {
		t.Errorf("%v, %v", set, err)
	}
	for _, bad := range []string{"", "[]", `{"keys":[]}`, `{"keys":[{"kty":"EC"}]}`, `{"keys":[` + strings.Repeat(`{},`, maxKeys) + `{}]}`} {
		if _, err := ParseKeySet([]byte(bad)); err == nil {
			t.Errorf("%.40q was read", bad)
		}
	}
}

func TestKeysFromURL(t *testing.T) {
	first, second := newTokens(t, "1"), newTokens(t, "2")
	var body atomic.Value
	var asked atomic.Int32
	body.Store(keySet(t, first.set...))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Write(body.Load().([]byte))
	}))
	defer srv.Close()
	var logs bytes.Buffer
	k, err := OpenKeys(t.Context(), KeysOptions{URL: srv.URL, Refresh: time.Hour, Retry: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if len(k.Find("1")) != 1 || len(k.Find("")) != 1 {
		t.Error("the key is not there")
	}
	body.Store(keySet(t, first.set[0], second.set[0]))
	wait(t, func() bool { return len(k.Find("2")) == 1 }) // asking for it makes it come
	body.Store(bytes.Repeat([]byte(" "), maxKeySet+1))
	before := asked.Load()
	wait(t, func() bool { return len(k.Find("3")) == 0 && asked.Load() > before+1 })
	if len(k.Find("1")) != 1 {
		t.Error("a set that cannot be read has taken the old one's place")
	}
}

func wait(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited too long")
		}
	}
}

func TestKeysFromFile(t *testing.T) {
	k := newTokens(t, "k")
	path := filepath.Join(t.TempDir(), "jwks.json")
	o := KeysOptions{URL: "file://" + path, Refresh: time.Hour, Retry: time.Second, Logger: slog.New(slog.DiscardHandler)}
	if _, err := OpenKeys(context.Background(), o); err == nil {
		t.Error("no file, no error")
	}
	if err := os.WriteFile(path, keySet(t, k.set...), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := OpenKeys(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	if found := keys.Find("k"); len(found) != 1 || !found[0].Key.(crypto.PublicKey).(*ecdsa.PublicKey).Equal(k.key.Public()) {
		t.Errorf("%v", found)
	}
	if _, err := OpenKeys(context.Background(), KeysOptions{URL: "ftp://x"}); err == nil {
		t.Error("any scheme")
	}
}

func TestUsersFiles(t *testing.T) {
	users, err := ParseUsers("# a comment\n\nalice = with spaces \r\nbob=a=b#c\n")
	if err != nil || len(users) != 2 || users["alice"] != " with spaces " || users["bob"] != "a=b#c" {
		t.Errorf("%q, %v", users, err)
	}
	for _, bad := range []string{"alice", "=x", "alice=", "a=b\na=c"} {
		if _, err := ParseUsers("ok=1\n" + bad); !errors.Is(err, ErrSyntax) || strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	const module = "org.apache.kafka.common.security.plain.PlainLoginModule"
	j, err := ParseJAAS(module + ` required
		username="admin" password="p\"q\\r;" user_admin = 'x y' user_alice=z;`)
	if err != nil || j.Module != module || j.Options["password"] != `p"q\r;` {
		t.Fatalf("%+v, %v", j, err)
	}
	if u := j.Users(); len(u) != 2 || u["admin"] != "x y" || u["alice"] != "z" {
		t.Errorf("%q", u)
	}
	for _, bad := range []string{"", "a;", "a required", "a sometimes x=y;", `a required x="s3cret;`, "a required s3cret;", "a required x=1; b required;", "a required =1;", "a required x=;"} {
		if _, err := ParseJAAS(bad); !errors.Is(err, ErrSyntax) || strings.Contains(fmt.Sprint(err), "s3cret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzMessages(f *testing.F) {
	k := newTokens(f, "k")
	scramServer, err := SHA256.Scram(func(user string) (Credential, bool) {
		return SHA256.FromSaltedPassword([]byte("salt"), []byte("salted"), 4096), user == "alice"
	})
	if err != nil {
		f.Fatal(err)
	}
	servers := []Mechanism{Plain(password), scramServer, OAuthBearer(k, TokenRules{}, time.Now)}
	f.Add("\x00alice\x00secre", "")
	f.Add("n,,n=alice,r=fyko", "c=biws,r=fyko,p=AAAA")
	f.Add("n,a=bob,\x01auth=Bearer a.b.c\x01\x01", "\x01")
	f.Fuzz(func(t *testing.T, first, second string) {
		for _, m := range servers {
			e := m.Start()
			for _, message := range []string{first, second} {
				_, done, err := e.Step([]byte(message))
				if done && message != "\x00alice\x00secret" && message != "alice\x00alice\x00secret" && !strings.HasSuffix(message, "\x00"+users["eve"]) {
					t.Fatalf("%s came in by %q, %q", e.Identity().User, first, second)
				}
				if err != nil {
					break
				}
			}
		}
	})
}

func FuzzJAAS(f *testing.F) {
	f.Add(`a.b.C required username="admin" user_x='y';`)
	f.Fuzz(func(t *testing.T, text string) {
		if j, err := ParseJAAS(text); err == nil && j.Module == "" {
			t.Error("a module without a name")
		}
	})
}
