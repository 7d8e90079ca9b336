package topicreader

import (
	"testing"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
)

// FuzzStateLayout: whatever a record of the layout's key says, it is refused, or is what a record of that many partitions says; and it never tells of more partitions than there are.
func FuzzStateLayout(f *testing.F) {
	key, value := StateLayoutRecord(50)
	f.Add(key, value, int32(50))
	f.Add(key, value[:4], int32(50))
	f.Add(key, []byte{stateLayoutVersion, 0xff, 0xff, 0xff, 0xff}, int32(1))
	f.Add([]byte{0, 62}, value, int32(1))
	f.Fuzz(func(t *testing.T, key, value []byte, has int32) {
		var l StateLayout
		var taken bool
		fuzzbound.Run(t, len(key)+len(value), func() {
			l = StateLayout{}
			taken = l.Take(Record{Key: key, Value: value})
		})
		n, err := l.Partitions(has)
		switch {
		case err != nil:
			if !taken {
				t.Fatalf("%v, and the record was not the layout's", err)
			}
		case n != has || l.Known():
			wantKey, wantValue := StateLayoutRecord(n)
			if !taken || string(wantKey) != string(key) || string(wantValue) != string(value) || n < 1 || has > 0 && n > has {
				t.Fatalf("%x = %x says %d of %d partitions", key, value, n, has)
			}
		}
		if CountsInState(Record{Key: key, Partition: 0}, 1) != true {
			t.Fatalf("key %x is at home in none of one partitions", key)
		}
	})
}
