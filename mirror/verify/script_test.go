package verify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// TestScripts plays testdata/scripts: transcripts of two logs, what happens to them, and what Verify then says. Run with -rewrite after a change and read the diff.
//
//	log a | log b       the batches of a log, one a line: BASE KEYS… with "k=" for a tombstone and "-" for no key, and
//	                    producer=N sequence=N transaction codec=NAME epoch=N horizon=MS keep=OFFSETS (what the cleaner left); BASE commit|abort|reset producer=N
//	copy                b becomes a
//	start a=N | end a=N  the bounds of a log
//	flip a=BASE byte=N  damages a byte, drop b=BASE takes a batch out
//	verify              compacted from=N to=N
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		logs := map[string]*disk{"a": {}, "b": {}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			number := func(key string) (n int64) {
				if a, ok := d.Arg(key); ok {
					a.Scan(t, 0, &n)
				}
				return n
			}
			// which is the argument that names a log, with its number.
			which := func() (*disk, int64) {
				for name, l := range logs {
					if d.HasArg(name) {
						return l, number(name)
					}
				}
				d.Fatalf(t, "which log?")
				return nil, 0
			}
			at := func(l *disk, base int64) int {
				i := slices.IndexFunc(l.batches, func(b []byte) bool { h, _, err := batch.Next(b); return err == nil && h.BaseOffset == base })
				if i < 0 {
					d.Fatalf(t, "there is no batch at %d", base)
				}
				return i
			}
			switch d.Cmd {
			case "log":
				var all []*content
				for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
					all = append(all, parse(t, d, line))
				}
				logs[d.CmdArgs[0].Key] = logOf(all...)
			case "copy":
				logs["b"] = logs["a"].clone()
			case "start":
				l, n := which()
				first, _ := slices.BinarySearch(l.last, n)
				l.start, l.last, l.batches = n, l.last[first:], l.batches[first:]
			case "end":
				l, n := which()
				l.end = n
			case "flip":
				l, base := which()
				l.batches[at(l, base)][number("byte")] ^= 1
			case "drop":
				l, base := which()
				*l = *l.without(at(l, base))
			case "verify":
				r, err := Verify(t.Context(), logs["a"], logs["b"], Options{Compacted: d.HasArg("compacted"), From: number("from"), To: number("to")})
				s := strings.ReplaceAll(r.String(), "; ", "\n  ") + "\n"
				if d.HasArg("compacted") {
					s += fmt.Sprintf("  clean from %d\n", r.Clean)
				}
				if err != nil {
					s += err.Error() + "\n"
				}
				return s
			default:
				d.Fatalf(t, "%s?", d.Cmd)
			}
			return ""
		})
	})
}

// parse reads one batch of a script.
func parse(t *testing.T, d *datadriven.TestData, line string) *content {
	words := strings.Fields(line)
	base, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		d.Fatalf(t, "%q: %v", line, err)
	}
	var keys []string
	settings := map[string]string{}
	for _, w := range words[1:] {
		name, value, ok := strings.Cut(w, "=")
		switch {
		case ok && value != "" || slices.Contains([]string{"transaction", "commit", "abort", "reset"}, w):
			settings[name] = value
		case w == "-":
			keys = append(keys, "")
		default:
			keys = append(keys, w)
		}
	}
	number := func(name string, otherwise int64) int64 {
		n, err := strconv.ParseInt(settings[name], 10, 64)
		if err != nil {
			return otherwise
		}
		return n
	}
	for word, kind := range map[string]int8{"commit": 'C', "abort": 'A', "reset": 'R'} {
		if _, ok := settings[word]; ok {
			return end(base, number("producer", -1), kind)
		}
	}
	c := write(base, keys...)
	if _, ok := settings["producer"]; ok {
		c.by(number("producer", -1), int32(number("sequence", 0)))
	}
	_, c.txn = settings["transaction"]
	c.epoch, c.horizon = int32(number("epoch", 5)), number("horizon", -1)
	c.codec = int8(max(0, slices.Index([]string{"none", "gzip", "snappy", "lz4", "zstd"}, settings["codec"])))
	if keep, ok := settings["keep"]; ok {
		var offsets []int64
		for _, o := range strings.Split(keep, ",") {
			if n, err := strconv.ParseInt(o, 10, 64); err == nil {
				offsets = append(offsets, n)
			}
		}
		c = c.kept(offsets...)
	}
	return c
}
