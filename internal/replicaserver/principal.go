package replicaserver

import (
	"encoding/asn1"
	"encoding/hex"
	"slices"
	"strings"
)

// nameKeywords are the attributes of a subject that Java prints by name in a name of RFC 2253; others are printed by number (Java: sun.security.x509.AVAKeyword).
var nameKeywords = map[string]string{
	"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
	"0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}

// stringTags are the ASN.1 types whose values Java prints as text: UTF8, Printable, T61, IA5, General, Universal and BMP.
var stringTags = []int{12, 19, 20, 22, 27, 28, 30}

// attributeSET is one relative name of a subject: mostly one attribute. The name's end tells encoding/asn1 that it is a set.
type attributeSET []struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// distinguishedName prints a certificate's subject as Kafka's principal has it without ssl.principal.mapping.rules, which is what Java's X500Principal.getName prints (RFC 2253):
//
//   - the most specific part first, which is the reverse of the certificate's order, joined by commas without spaces: "CN=broker-1,OU=kafka,O=Acme"; the attributes of one part are joined by "+";
//   - CN, C, L, ST, STREET, O, OU, UID and DC by these names, everything else as its number with the value's DER bytes in hexadecimal behind "#";
//   - a backslash in front of , = + < > # ; " and \ wherever they are, and in front of spaces at either end of a value; a zero byte is \00; all else, also beyond ASCII, as it is.
func distinguishedName(subject []byte) (string, error) {
	var parts []attributeSET
	if rest, err := asn1.Unmarshal(subject, &parts); err != nil {
		return "", err
	} else if len(rest) > 0 {
		return "", asn1.SyntaxError{Msg: "bytes behind the subject"}
	}
	var b strings.Builder
	for i, part := range slices.Backward(parts) {
		if i < len(parts)-1 {
			b.WriteByte(',')
		}
		for j, a := range part {
			if j > 0 {
				b.WriteByte('+')
			}
			number := a.Type.String()
			keyword, known := nameKeywords[number]
			if !known || a.Value.Class != asn1.ClassUniversal || !slices.Contains(stringTags, a.Value.Tag) {
				if !known {
					keyword = number
				}
				b.WriteString(keyword + "=#" + hex.EncodeToString(a.Value.FullBytes))
				continue
			}
			b.WriteString(keyword + "=" + escapeValue(string(a.Value.Bytes)))
		}
	}
	return b.String(), nil
}

func escapeValue(v string) string {
	const blank = " \r"
	lead := len(v) - len(strings.TrimLeft(v, blank))
	trail := len(strings.TrimRight(v, blank))
	var b strings.Builder
	for i, r := range v {
		switch {
		case r == 0:
			b.WriteString(`\00`)
			continue
		case strings.ContainsRune(`,=+<>#;"\`, r), i < lead, i >= trail:
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
