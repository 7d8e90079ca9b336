package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a number of bytes, a flag written as in 256MiB.
type size int64

func (s *size) String() string { return bytesText(int64(*s)) }

// Set reads a number with KiB, MiB or GiB, or of bytes.
func (s *size) Set(text string) error {
	number, unit := text, int64(1)
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}} {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = n, u.bytes
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return errors.New("not a size; write it as in 256MiB")
	}
	*s = size(n * unit)
	return nil
}

func bytesText(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
