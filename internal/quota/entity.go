package quota

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// Part is what an entity says of users, of client ids or of addresses: nothing, one of them, or all that have no quota of their own.
type Part struct {
	Given, Default bool
	Name           string
}

// Named is one user, client id or address.
func Named(name string) Part { return Part{Given: true, Name: name} }

// ByDefault stands for those without a quota of their own.
func ByDefault() Part { return Part{Given: true, Default: true} }

// Entity is whom quotas are for.
type Entity struct{ User, ClientID, IP Part }

// The types of an entity's parts, as they are called over the protocol.
const (
	TypeUser     = "user"
	TypeClientID = "client-id"
	TypeIP       = "ip"
)

// Part finds a part by its type, nil if there is no such type.
func (e *Entity) Part(kind string) *Part {
	switch kind {
	case TypeUser:
		return &e.User
	case TypeClientID:
		return &e.ClientID
	case TypeIP:
		return &e.IP
	}
	return nil
}

// Types are the types that entities are made of, in the order of Apache Kafka's answers.
func Types() []string { return []string{TypeClientID, TypeIP, TypeUser} }

// The names of quotas.
const (
	ProducerByteRate       = "producer_byte_rate"
	ConsumerByteRate       = "consumer_byte_rate"
	RequestPercentage      = "request_percentage"
	ControllerMutationRate = "controller_mutation_rate"
	ConnectionCreationRate = "connection_creation_rate"
)

// ErrInvalid: an entity or a value that there cannot be.
var ErrInvalid = errors.New("invalid quota")

// Check judges an entity.
func (e *Entity) Check() error {
	if !e.User.Given && !e.ClientID.Given && !e.IP.Given {
		return fmt.Errorf("%w: the entity is empty", ErrInvalid)
	}
	for _, t := range Types() {
		if p := e.Part(t); p.Given && !p.Default && p.Name == "" {
			return fmt.Errorf("%w: the %s is empty", ErrInvalid, t)
		} else if !utf8.ValidString(p.Name) { // it would be another one after the next start
			return fmt.Errorf("%w: the %s is not UTF-8", ErrInvalid, t)
		}
	}
	if e.IP.Given && (e.User.Given || e.ClientID.Given) {
		return fmt.Errorf("%w: an address cannot be combined with a user or a client id", ErrInvalid)
	}
	if e.IP.Given && !e.IP.Default {
		if _, err := netip.ParseAddr(e.IP.Name); err != nil {
			return fmt.Errorf("%w: %s is no address; names of hosts are not looked up", ErrInvalid, e.IP.Name)
		}
	}
	return nil
}

// CheckValue judges one quota of an entity.
func (e *Entity) CheckValue(name string, value float64) error {
	highest, fractions := 0.0, false
	switch {
	case e.IP.Given && name == ConnectionCreationRate:
		highest = math.MaxInt32
	case !e.IP.Given && (name == ProducerByteRate || name == ConsumerByteRate):
		highest = math.MaxInt64
	case !e.IP.Given && (name == RequestPercentage || name == ControllerMutationRate):
		highest, fractions = math.MaxFloat64, true
	default:
		return fmt.Errorf("%w: %s is not known for this entity", ErrInvalid, name)
	}
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return fmt.Errorf("%w: %s must be a finite number", ErrInvalid, name)
	case value <= 0:
		return fmt.Errorf("%w: %s must be greater than 0", ErrInvalid, name)
	case value > highest:
		return fmt.Errorf("%w: %s is too large", ErrInvalid, name)
	case !fractions && math.Mod(value, 1) > 1e-6:
		return fmt.Errorf("%w: %s must be a whole number", ErrInvalid, name)
	}
	return nil
}

// Compare orders entities.
func Compare(a, b Entity) int {
	for _, t := range Types() {
		if c := compareParts(a.Part(t), b.Part(t)); c != 0 {
			return c
		}
	}
	return 0
}

func compareParts(a, b *Part) int {
	rank := func(p *Part) int {
		switch {
		case !p.Given:
			return 0
		case p.Default:
			return 1
		}
		return 2
	}
	if c := rank(a) - rank(b); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// Table is all quotas: by entity, then by name.
type Table map[Entity]map[string]float64

// Entities are those of a table, in order.
func (t Table) Entities() []Entity { return slices.SortedFunc(maps.Keys(t), Compare) }

// Clone copies a table, but for the values of an entity, which are replaced and not changed.
func (t Table) Clone() Table {
	if t == nil {
		return Table{}
	}
	return maps.Clone(t)
}
