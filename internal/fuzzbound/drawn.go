package fuzzbound

import "math/rand/v2"

// Drawn returns n bytes, the same for the same n: a seed for a target that draws a property's values from its input. Bytes that repeat make some properties draw for ever,
// and an input that ends before the property has drawn enough skips: nothing is looked at.
func Drawn(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}
