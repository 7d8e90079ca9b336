package kafkaconfig

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"hash"
	"regexp"
	"strings"
	"unicode"
)

// pemBlock is lenient about line ends, as Kafka is: a value in a properties file may have all of a block on one line.
var pemBlock = regexp.MustCompile(`-----BEGIN ([A-Z0-9 ]+)-----([^-]*)-----END ([A-Z0-9 ]+)-----`)

var (
	errNoPEM      = errors.New("no PEM block (-----BEGIN …-----) in it")
	errOldCipher  = errors.New("the private key is encrypted in OpenSSL's old way (Proc-Type)")
	errDamaged    = errors.New("a PEM block is damaged")
	errScheme     = errors.New("the private key is encrypted with a scheme that is not PBES2 with PBKDF2 and AES-CBC")
	errWrongKey   = errors.New("the private key cannot be decrypted with this password")
	errNoPassword = errors.New("the private key is encrypted")
)

// pemBlocks cuts PEM text.
func pemBlocks(text string) ([]*pem.Block, error) {
	if strings.Contains(text, "Proc-Type:") {
		return nil, errOldCipher
	}
	var blocks []*pem.Block
	for _, m := range pemBlock.FindAllStringSubmatch(text, -1) {
		packed := strings.Map(func(r rune) rune {
			if unicode.IsSpace(r) {
				return -1
			}
			return r
		}, m[2])
		b, err := base64.StdEncoding.DecodeString(packed)
		if err != nil || m[1] != m[3] {
			return nil, errDamaged
		}
		blocks = append(blocks, &pem.Block{Type: m[1], Bytes: b})
	}
	if len(blocks) == 0 {
		return nil, errNoPEM
	}
	return blocks, nil
}

// certificates are those in PEM text, in its order.
func certificates(text string) ([]*x509.Certificate, error) {
	blocks, err := pemBlocks(text)
	if err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	for _, b := range blocks {
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, errors.New("a certificate cannot be read")
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, errors.New("no certificate in it")
	}
	return certs, nil
}

// keyPair makes a TLS certificate of PEM text with a chain and PEM text with its key, which may be the same.
func keyPair(chain, key, password string) (tls.Certificate, error) {
	certs, err := certificates(chain)
	if err != nil {
		return tls.Certificate{}, err
	}
	blocks, err := pemBlocks(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	var keyPEM []byte
	for _, b := range blocks {
		if !strings.HasSuffix(b.Type, "PRIVATE KEY") {
			continue
		}
		if b.Type == "ENCRYPTED PRIVATE KEY" {
			if password == "" {
				return tls.Certificate{}, errNoPassword
			}
			if b.Bytes, err = decryptKey(b.Bytes, password); err != nil {
				return tls.Certificate{}, err
			}
			b.Type = "PRIVATE KEY"
		}
		keyPEM = pem.EncodeToMemory(b)
		break
	}
	if keyPEM == nil {
		return tls.Certificate{}, errors.New("no private key in it")
	}
	var chainPEM []byte
	for _, c := range certs {
		chainPEM = append(chainPEM, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	pair, err := tls.X509KeyPair(chainPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, errors.New("the private key cannot be read or is not that of the first certificate")
	}
	pair.Leaf = certs[0]
	return pair, nil
}

// The layouts of RFC 5958 (encrypted private keys) and RFC 8018 (PBES2, PBKDF2).
type (
	encryptedKey struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}
	pbes2Parameters struct {
		Derivation, Encryption pkix.AlgorithmIdentifier
	}
	pbkdf2Parameters struct {
		Salt       []byte
		Iterations int
		KeyLength  int                      `asn1:"optional"`
		PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
	}
)

var (
	oidPBES2  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}
	hashes    = map[string]func() hash.Hash{
		"":                    sha1.New, // the default of RFC 8018
		"1.2.840.113549.2.7":  sha1.New,
		"1.2.840.113549.2.9":  sha256.New,
		"1.2.840.113549.2.10": sha512.New384,
		"1.2.840.113549.2.11": sha512.New,
	}
	keyLengths = map[string]int{"2.16.840.1.101.3.4.1.2": 16, "2.16.840.1.101.3.4.1.22": 24, "2.16.840.1.101.3.4.1.42": 32} // AES-CBC
)

// mostIterations bounds the work that a key's file can ask for: some seconds.
const mostIterations = 10_000_000

// decryptKey opens an encrypted PKCS#8 key as openssl pkcs8 -topk8 writes it.
func decryptKey(der []byte, password string) ([]byte, error) {
	var (
		key    encryptedKey
		scheme pbes2Parameters
		kdf    pbkdf2Parameters
		iv     []byte
	)
	if !whole(der, &key) {
		return nil, errDamaged
	}
	if !key.Algorithm.Algorithm.Equal(oidPBES2) || !whole(key.Algorithm.Parameters.FullBytes, &scheme) || !scheme.Derivation.Algorithm.Equal(oidPBKDF2) ||
		!whole(scheme.Derivation.Parameters.FullBytes, &kdf) || !whole(scheme.Encryption.Parameters.FullBytes, &iv) {
		return nil, errScheme
	}
	prf := ""
	if len(kdf.PRF.Algorithm) > 0 {
		prf = kdf.PRF.Algorithm.String()
	}
	length, digest := keyLengths[scheme.Encryption.Algorithm.String()], hashes[prf]
	if length == 0 || digest == nil || len(iv) != aes.BlockSize || kdf.Iterations < 1 || kdf.Iterations > mostIterations {
		return nil, errScheme
	}
	derived, err := pbkdf2.Key(digest, password, kdf.Salt, kdf.Iterations, length)
	if err != nil {
		return nil, errScheme
	}
	block, err := aes.NewCipher(derived)
	if err != nil || len(key.Data) == 0 || len(key.Data)%aes.BlockSize != 0 {
		return nil, errDamaged
	}
	plain := make([]byte, len(key.Data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(plain, key.Data)
	padding := int(plain[len(plain)-1])
	if padding < 1 || padding > aes.BlockSize {
		return nil, errWrongKey
	}
	plain = plain[:len(plain)-padding]
	if _, err := x509.ParsePKCS8PrivateKey(plain); err != nil {
		return nil, errWrongKey
	}
	return plain, nil
}

// whole reads DER that has to be used up.
func whole(der []byte, into any) bool {
	rest, err := asn1.Unmarshal(der, into)
	return err == nil && len(rest) == 0
}
