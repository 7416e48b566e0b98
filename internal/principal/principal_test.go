package principal

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"testing"
)

func raw(t *testing.T, names pkix.RDNSequence) []byte {
	t.Helper()
	b, err := asn1.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func oid(n ...int) asn1.ObjectIdentifier { return n }

func TestName(t *testing.T) {
	one := func(id asn1.ObjectIdentifier, v string) pkix.RelativeDistinguishedNameSET {
		return pkix.RelativeDistinguishedNameSET{{Type: id, Value: v}}
	}
	cn, o, c := oid(2, 5, 4, 3), oid(2, 5, 4, 10), oid(2, 5, 4, 6)
	for _, x := range []struct {
		names pkix.RDNSequence
		want  string
	}{
		{pkix.RDNSequence{one(c, "DE"), one(o, "Example"), one(cn, "alice")}, "CN=alice,O=Example,C=DE"},
		{pkix.RDNSequence{one(cn, "alice"), one(o, "Example")}, "O=Example,CN=alice"},
		{pkix.RDNSequence{one(cn, `a,b+c"d\e`)}, `CN=a\,b\+c\"d\\e`},
		{pkix.RDNSequence{one(cn, "#x ")}, `CN=\#x\ `},
		{pkix.RDNSequence{one(oid(0, 9, 2342, 19200300, 100, 1, 1), "u1"), one(cn, "é")}, "CN=é,UID=u1"},
		{pkix.RDNSequence{one(oid(2, 5, 4, 5), "77")}, "2.5.4.5=#13023737"},
		{pkix.RDNSequence{{{Type: cn, Value: "a"}, {Type: o, Value: "b"}}}, "CN=a+O=b"},
		{nil, ""},
	} {
		if got, err := Name(raw(t, x.names)); err != nil || got != x.want {
			t.Errorf("%v: %q, %v, want %q", x.names, got, err, x.want)
		}
	}
	if _, err := Name([]byte{0x30, 0x80}); err == nil {
		t.Error("broken DER was read")
	}
}

// TestNamesAsJava has values of all types with what X500Principal.getName of Java 17 makes of them, which is what Apache Kafka calls a client.
func TestNamesAsJava(t *testing.T) {
	const u, printable, t61, ia5, bmp, universal, octets = asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagT61String, asn1.TagIA5String, asn1.TagBMPString, 28, asn1.TagOctetString
	cn := oid(2, 5, 4, 3)
	for _, x := range []struct {
		id    asn1.ObjectIdentifier
		tag   int
		value string
		want  string
	}{
		{cn, u, "", "CN="},
		{cn, u, " ", `CN=\ `},
		{cn, u, "  ", `CN=\ \ `},
		{cn, u, "  a  ", `CN=\ \ a\ \ `},
		{cn, u, "a  b", "CN=a  b"},
		{cn, u, "\ra\r", "CN=\\\ra\\\r"},
		{cn, u, "a\rb", "CN=a\rb"},
		{cn, u, "a\nb", "CN=a\nb"},
		{cn, u, "svc#1", `CN=svc\#1`},
		{cn, u, "##", `CN=\#\#`},
		{cn, u, "a=b", `CN=a\=b`},
		{cn, u, "a,O=b", `CN=a\,O\=b`},
		{cn, u, "a;b<c>", `CN=a\;b\<c\>`},
		{cn, u, "a\x00b", `CN=a\00b`},
		{cn, u, "*@/", "CN=*@/"},
		{cn, u, "日本\U0001F511", "CN=日本\U0001F511"},
		{cn, printable, "#", `CN=\#`},
		{cn, printable, "é", "CN=é"},
		{cn, printable, "a@b", "CN=a@b"},
		{cn, t61, "é", "CN=é"},
		{cn, ia5, "é", "CN=é"},
		{cn, tagGeneral, "é", "CN=é"},
		{cn, bmp, "\x00a\x00b", `CN=\00a\00b`},
		{cn, bmp, "a", "CN=a"},
		{cn, universal, "\x00\x00\x00a", "CN=#1c0400000061"},
		{cn, octets, "a", "CN=#040161"},
		{oid(0, 9, 2342, 19200300, 100, 1, 25), ia5, "example", "DC=example"},
		{oid(1, 2, 840, 113549, 1, 9, 1), ia5, "a@b", "1.2.840.113549.1.9.1=#1603614062"},
		// Java has U+FFFD for each of these.
		{cn, u, "\xe9", "CN=#0c01e9"},
		{cn, t61, "\xe9", "CN=#1401e9"},
	} {
		der, err := asn1.Marshal([]attributesSET{{{Type: x.id, Value: asn1.RawValue{Tag: x.tag, Bytes: []byte(x.value)}}}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Name(der); err != nil || got != x.want {
			t.Errorf("%v, type %d, %q: %q, %v, want %q", x.id, x.tag, x.value, got, err, x.want)
		}
	}
}

func TestRules(t *testing.T) {
	const subject = "CN=Duke,OU=ServiceUsers,O=Org,C=US"
	for _, x := range []struct{ rules, subject, want string }{
		{"", subject, subject},
		{"DEFAULT", subject, subject},
		{`RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/`, subject, "Duke"},
		{`RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT`, subject, "duke"},
		{`RULE:^CN=(.*?),OU=Other.*$/$1/L,RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/U`, subject, "DUKE@SERVICEUSERS"},
		{`RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$5/L`, subject, "duke@$5"},
		{`RULE:^CN=([^,]*),.*$/$1@$12/`, subject, "Duke@Duke2"},
		{`RULE:^cn=x$/y/,DEFAULT`, subject, subject},
		{`RULE:CN=a\/b/x\/y/`, "CN=a/b", "x/y"},
		{`RULE:CN/x/`, subject, ""}, // the whole must match
	} {
		rules, err := ParseRules(x.rules)
		if err != nil {
			t.Errorf("%s: %v", x.rules, err)
			continue
		}
		got, err := rules.Map(x.subject)
		if got != x.want || (x.want == "") != errors.Is(err, ErrNoRule) {
			t.Errorf("%s: %q, %v, want %q", x.rules, got, err, x.want)
		}
	}
	for _, bad := range []string{"RULE:a", "RULE:a/b", "RULE:(/b/", "NONE", "DEFAULT DEFAULT", "RULE:a/b/X", "RULE:a/b/LU"} {
		if _, err := ParseRules(bad); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

func FuzzRules(f *testing.F) {
	f.Add(`RULE:^CN=(.*?),OU=Other.*$/$1/L,DEFAULT`, "CN=a")
	f.Add(`RULE:a\/(b)/\$1$1$2$11/U`, "a/b")
	f.Fuzz(func(t *testing.T, text, subject string) {
		rules, err := ParseRules(text)
		if err != nil {
			return
		}
		if _, err := rules.Map(subject); err != nil && !errors.Is(err, ErrNoRule) {
			t.Error(err)
		}
	})
}
