package mirrortest_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/mirrortest"
)

// recorder is a test whose errors are wanted.
type recorder struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// TestVerifySaysNo: one flipped byte, a batch that is missing, one at another offset, a marker that is missing from a transaction: each is found.
func TestVerifySaysNo(t *testing.T) {
	t.Parallel()
	for how, spoil := range map[string]func(batches [][]byte) [][]byte{
		"differs in byte 68": func(b [][]byte) [][]byte {
			b[1][len(b[1])-1] ^= 1
			return b
		},
		"missing in b": func(b [][]byte) [][]byte { return slices.Delete(b, 1, 2) },
		"offset 1 in a is at offset 2 in b": func(b [][]byte) [][]byte {
			for _, batch := range b[1:] {
				binary.BigEndian.PutUint64(batch, binary.BigEndian.Uint64(batch)+1)
			}
			return b
		},
		"only a has": func(b [][]byte) [][]byte { return b[:len(b)-1] }, // the COMMIT
	} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, failed over: %v", how, after), func(t *testing.T) {
				t.Parallel()
				r := &recorder{TB: t}
				pair := mirrortest.Start(r, mirrortest.Config{Topics: map[string]int32{"orders": 1}})
				ctx := bounded(t)
				cl := client(t, pair.Primary(), kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("orders"))
				if err := cl.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				produce(ctx, t, cl, "a", "b", "c")
				if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
					t.Fatal(err)
				}
				if n := pair.Verify(); n != 4 || len(r.said) > 0 {
					t.Fatalf("%d batches, %q", n, r.said)
				}
				if after {
					pair.Failover()
				} else {
					pair.Link().Cut()
				}
				raw, err := pair.Standby().Memory().RawLog("orders", 0)
				if err != nil {
					t.Fatal(err)
				}
				var batches [][]byte
				for info, b := range mirror.Batches(raw) {
					if info.Base < 4 {
						batches = append(batches, bytes.Clone(b))
					}
				}
				if err := pair.Standby().Memory().ImportLog("orders", 0, bytes.Join(spoil(batches), nil), 0, 9); err != nil {
					t.Fatal(err)
				}
				if _, err := mirrortest.Compared(pair, mirror.TopicPartition{Topic: "orders"}); err == nil || !strings.Contains(err.Error(), how) {
					t.Errorf("%v, not %s", err, how)
				}
				if after {
					if pair.Verify(); len(r.said) != 1 {
						t.Errorf("Verify said %q", r.said)
					}
				}
			})
		}
	}
}
