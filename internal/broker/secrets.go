package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/sasl"
)

// secrets keeps what clients have said about who may come in and do what: SCRAM credentials and ACLs, one file each (docs/format/security.md) in a directory
// that only the broker's user may read. A change is on stable storage before it is in force, and in force before it is confirmed.
type secrets struct {
	fs         vfs.FS
	dir        string
	authorizer *acl.Authorizer // nil: everybody may do everything; ACLs are neither kept nor shown

	// changing is held while a file is replaced, so that the changes come one after the other.
	changing sync.Mutex

	mu    sync.RWMutex
	users map[string]map[int8]sasl.Credential // user, then mechanism. What is in it is replaced, not changed
}

const (
	securityDir = "security"
	aclsFile    = "acls.json"
	scramFile   = "scram.json"
)

func openSecrets(fs vfs.FS, dataDir string, authorizer *acl.Authorizer) (*secrets, error) {
	s := &secrets{fs: fs, dir: fs.PathJoin(dataDir, securityDir), authorizer: authorizer, users: make(map[string]map[int8]sasl.Credential)}
	if err := fs.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of credentials: %w", err)
	}
	if err := atomicfile.SyncDir(fs, dataDir); err != nil {
		return nil, err
	}
	if err := s.loadUsers(); err != nil {
		return nil, err
	}
	return s, s.loadACLs()
}

// storedACL is a rule in the file, in words.
type storedACL struct {
	ResourceType string `json:"resourceType"`
	ResourceName string `json:"resourceName"`
	PatternType  string `json:"patternType"`
	Principal    string `json:"principal"`
	Host         string `json:"host"`
	Operation    string `json:"operation"`
	Permission   string `json:"permissionType"`
}

type aclDocument struct {
	Version int         `json:"version"`
	ACLs    []storedACL `json:"acls"`
}

type storedCredential struct {
	User       string `json:"user"`
	Mechanism  string `json:"mechanism"`
	Salt       []byte `json:"salt"`
	StoredKey  []byte `json:"storedKey"`
	ServerKey  []byte `json:"serverKey"`
	Iterations int    `json:"iterations"`
}

type scramDocument struct {
	Version     int                `json:"version"`
	Credentials []storedCredential `json:"credentials"`
}

// documentVersion is of both files.
const documentVersion = 1

func (s *secrets) load(name string, into any) (there bool, err error) {
	text, err := atomicfile.Read(s.fs, s.fs.PathJoin(s.dir, name))
	if err != nil || text == nil {
		return false, err
	}
	return true, json.Unmarshal(text, into)
}

func (s *secrets) save(name string, doc any) error {
	text, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	if err := atomicfile.ReplaceOrKeep(s.fs, s.fs.PathJoin(s.dir, name), append(text, '\n')); err != nil {
		return fmt.Errorf("saving %s: %w", name, err)
	}
	return nil
}

func (s *secrets) loadACLs() error {
	var doc aclDocument
	there, err := s.load(aclsFile, &doc)
	if err == nil && there && doc.Version != documentVersion {
		err = fmt.Errorf("version %d, %d is known", doc.Version, documentVersion)
	}
	if err != nil {
		return fmt.Errorf("reading ACLs: %w", err)
	}
	if s.authorizer == nil {
		return nil
	}
	list := make([]acl.Binding, 0, len(doc.ACLs))
	for i := range doc.ACLs {
		one, err := doc.ACLs[i].binding()
		if err != nil {
			return fmt.Errorf("reading ACLs: number %d: %w", i+1, err)
		}
		list = append(list, one)
	}
	s.authorizer.Replace(list)
	return nil
}

func (s *secrets) loadUsers() error {
	var doc scramDocument
	there, err := s.load(scramFile, &doc)
	if err == nil && there && doc.Version != documentVersion {
		err = fmt.Errorf("version %d, %d is known", doc.Version, documentVersion)
	}
	if err != nil {
		return fmt.Errorf("reading SCRAM credentials: %w", err)
	}
	for _, c := range doc.Credentials {
		h := hashNamed(c.Mechanism)
		if h == nil || c.User == "" || len(c.StoredKey) == 0 || len(c.ServerKey) == 0 || c.Iterations < 1 {
			return fmt.Errorf("reading SCRAM credentials: one of user %q is not whole", c.User)
		}
		if s.users[c.User] == nil {
			s.users[c.User] = make(map[int8]sasl.Credential)
		}
		s.users[c.User][h.Type] = sasl.Credential{Salt: c.Salt, Iterations: c.Iterations, StoredKey: c.StoredKey, ServerKey: c.ServerKey}
	}
	return nil
}

func hashNamed(name string) *sasl.ScramHash {
	for _, h := range []*sasl.ScramHash{sasl.SHA256, sasl.SHA512} {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// credentials looks users of a mechanism up.
func (s *secrets) credentials(h *sasl.ScramHash) sasl.Credentials {
	return func(user string) (sasl.Credential, bool) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		c, ok := s.users[user][h.Type]
		return c, ok
	}
}

// user gives what is kept of a user, by mechanism.
func (s *secrets) user(name string) map[int8]sasl.Credential {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.users[name]
}

func (s *secrets) userNames() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.users))
}

// scramChange replaces a credential, or takes it away where it is nil.
type scramChange struct {
	user       string
	mechanism  int8
	credential *sasl.Credential
}

// alterUsers makes changes, all or none.
func (s *secrets) alterUsers(changes []scramChange) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.RLock()
	next := maps.Clone(s.users)
	s.mu.RUnlock()
	for _, c := range changes {
		of := maps.Clone(next[c.user])
		if of == nil {
			of = make(map[int8]sasl.Credential)
		}
		if c.credential != nil {
			of[c.mechanism] = *c.credential
		} else {
			delete(of, c.mechanism)
		}
		if next[c.user] = of; len(of) == 0 {
			delete(next, c.user)
		}
	}
	if err := s.save(scramFile, scramDocumentOf(next)); err != nil {
		return err
	}
	s.mu.Lock()
	s.users = next
	s.mu.Unlock()
	return nil
}

func scramDocumentOf(users map[string]map[int8]sasl.Credential) *scramDocument {
	doc := &scramDocument{Version: documentVersion, Credentials: []storedCredential{}}
	for _, user := range slices.Sorted(maps.Keys(users)) {
		for _, t := range slices.Sorted(maps.Keys(users[user])) {
			if h, ok := sasl.ScramHashOf(t); ok {
				c := users[user][t]
				doc.Credentials = append(doc.Credentials, storedCredential{User: user, Mechanism: h.Name, Salt: c.Salt, StoredKey: c.StoredKey, ServerKey: c.ServerKey, Iterations: c.Iterations})
			}
		}
	}
	return doc
}

// errTooManyACLs: the bound below.
var errTooManyACLs = errors.New("too many ACLs")

// maxACLs bounds the file that every change writes anew.
const maxACLs = 100_000

// addACLs adds rules, all or none.
func (s *secrets) addACLs(list []acl.Binding) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	next := slices.Concat(s.authorizer.All(), list)
	if len(next) > maxACLs {
		return fmt.Errorf("%w: %d, %d are allowed", errTooManyACLs, len(next), maxACLs)
	}
	return s.replaceACLs(next)
}

// deleteACLs takes the rules away that filters match, and gives those of each filter. A rule that two filters match counts for both.
func (s *secrets) deleteACLs(filters []acl.Filter) ([][]acl.Binding, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	gone := make([][]acl.Binding, len(filters))
	any := false
	for i := range filters {
		gone[i] = s.authorizer.List(&filters[i])
		any = any || len(gone[i]) > 0
	}
	if !any {
		return gone, nil
	}
	var next []acl.Binding
	for _, one := range s.authorizer.All() {
		if !slices.ContainsFunc(filters, func(f acl.Filter) bool { return f.Matches(&one) }) {
			next = append(next, one)
		}
	}
	return gone, s.replaceACLs(next)
}

func (s *secrets) replaceACLs(next []acl.Binding) error {
	rules := acl.NewRules(next)
	doc := &aclDocument{Version: documentVersion, ACLs: []storedACL{}}
	for _, one := range rules.All() {
		doc.ACLs = append(doc.ACLs, storedOf(&one))
	}
	if err := s.save(aclsFile, doc); err != nil {
		return err
	}
	s.authorizer.Use(rules)
	return nil
}

func storedOf(b *acl.Binding) storedACL {
	return storedACL{b.Resource.String(), b.Name, b.Pattern.String(), b.Principal, b.Host, b.Operation.String(), b.Permission.String()}
}

func (s *storedACL) binding() (acl.Binding, error) {
	b := acl.Binding{
		Resource: acl.ParseResourceType(s.ResourceType), Name: s.ResourceName, Pattern: acl.ParsePatternType(s.PatternType), Principal: s.Principal, Host: s.Host,
		Operation: acl.ParseOperation(s.Operation), Permission: acl.ParsePermission(s.Permission),
	}
	if strings.TrimSpace(s.ResourceType) == "" {
		return b, errors.New("it has no resource type")
	}
	return b, b.Check()
}
