package replicaserver

import (
	"encoding/asn1"
	"testing"
)

// TestNamesAreAsJavaPrintsThem has what X500Principal.getName of OpenJDK 17 printed.
func TestNamesAreAsJavaPrintsThem(t *testing.T) {
	type attribute struct {
		Type  asn1.ObjectIdentifier
		Value asn1.RawValue
	}
	type partSET []attribute
	var (
		cn, c, l, st, street, o, ou = asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.ObjectIdentifier{2, 5, 4, 6}, asn1.ObjectIdentifier{2, 5, 4, 7}, asn1.ObjectIdentifier{2, 5, 4, 8},
			asn1.ObjectIdentifier{2, 5, 4, 9}, asn1.ObjectIdentifier{2, 5, 4, 10}, asn1.ObjectIdentifier{2, 5, 4, 11}
		uid, dc              = asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 1}, asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25}
		email, title, serial = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 1}, asn1.ObjectIdentifier{2, 5, 4, 12}, asn1.ObjectIdentifier{2, 5, 4, 5}
	)
	const octets, utf8, numeric, printable, t61, ia5, bmp = 4, 12, 18, 19, 20, 22, 30
	v := func(oid asn1.ObjectIdentifier, tag int, value string) attribute {
		return attribute{oid, asn1.RawValue{Tag: tag, Bytes: []byte(value)}}
	}
	for _, k := range []struct {
		parts []partSET
		want  string
	}{
		{[]partSET{{v(c, printable, "DE")}, {v(o, utf8, "Acme")}, {v(ou, utf8, "kafka")}, {v(cn, utf8, "broker-1")}}, "CN=broker-1,OU=kafka,O=Acme,C=DE"},
		{[]partSET{{v(cn, utf8, `a,b=c+d<e>f#g;h"i\j`)}}, `CN=a\,b\=c\+d\<e\>f\#g\;h\"i\\j`},
		{[]partSET{{v(cn, utf8, "  lead and trail  ")}}, `CN=\ \ lead and trail\ \ `},
		{[]partSET{{v(cn, utf8, "  ")}}, `CN=\ \ `},
		{[]partSET{{v(cn, utf8, "#x # y")}}, `CN=\#x \# y`},
		{[]partSET{{v(cn, utf8, "naïve ☃ 😀")}}, "CN=naïve ☃ 😀"},
		{[]partSET{{v(email, ia5, "a@b.c")}, {v(cn, utf8, "x")}}, "CN=x,1.2.840.113549.1.9.1=#16056140622e63"},
		{[]partSET{{v(dc, ia5, "com")}, {v(dc, ia5, "acme")}, {v(uid, utf8, "u1")}}, "UID=u1,DC=acme,DC=com"},
		{[]partSET{{v(title, utf8, "boss")}, {v(serial, printable, "12")}}, "2.5.4.5=#13023132,2.5.4.12=#0c04626f7373"},
		{[]partSET{{v(cn, utf8, "a"), v(ou, utf8, "b")}, {v(o, utf8, "z")}}, "O=z,CN=a+OU=b"},
		{[]partSET{{v(cn, utf8, "a\x00b")}}, `CN=a\00b`},
		{[]partSET{{v(cn, utf8, "a\tb\r\nc\r")}}, "CN=a\tb\r\nc\\\r"},
		{[]partSET{{v(cn, utf8, "")}}, "CN="},
		{[]partSET{}, ""},
		{[]partSET{{v(cn, numeric, "12 3")}}, "CN=#120431322033"},
		{[]partSET{{v(cn, octets, "oct")}}, "CN=#04036f6374"},
		{[]partSET{{v(cn, bmp, "\x00a\x00b")}}, `CN=\00a\00b`},
		{[]partSET{{v(cn, t61, "caf\xe9")}}, "CN=caf\ufffd"},
		{[]partSET{{v(cn, utf8, "bad\xff\xfe\x80utf")}}, "CN=bad\ufffd\ufffd\ufffdutf"},
		{[]partSET{{v(st, utf8, "st")}, {v(l, utf8, "l")}, {v(street, utf8, "street")}}, "STREET=street,L=l,ST=st"},
		{[]partSET{{v(cn, utf8, "*.example.com/!@$%^&()'-._~`|{}[]?:")}}, "CN=*.example.com/!@$%^&()'-._~`|{}[]?:"},
	} {
		der, err := asn1.Marshal(k.parts)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := distinguishedName(der); err != nil || got != k.want {
			t.Errorf("%q, %v, want %q", got, err, k.want)
		}
		if _, err := distinguishedName(append(der, 0)); err == nil {
			t.Errorf("%q: bytes behind the subject are no error", k.want)
		}
	}
	for _, bad := range [][]byte{nil, {0x30}, {0x30, 3, 1, 1, 1}} {
		if got, err := distinguishedName(bad); err == nil {
			t.Errorf("%x is %q", bad, got)
		}
	}
}
