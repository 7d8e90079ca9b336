package kraft

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
)

// FuzzIdentity: whatever the identity file holds, it is left as it is and refused with its name, or the process has an incarnation of its own; one that was kept is found again
// by this node in this cluster, and by nobody else.
func FuzzIdentity(f *testing.F) {
	first := f.TempDir()
	id, err := openIdentity(first)
	if err != nil {
		f.Fatal(err)
	}
	if _, _, err := id.incarnation(9999, "cluster"); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(id.file())
	if err != nil {
		f.Fatal(err)
	}
	id.close()
	f.Add(good)
	f.Add(bytes.ReplaceAll(good, []byte(`9999`), []byte(`9998`)))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"incarnation":[1,2,3]}`))
	f.Add(make([]byte, 400))
	f.Add(append(bytes.Clone(good), "x"...))
	f.Add([]byte(strings.Repeat(`{"version":`, 10_000)))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		folder := filepath.Join(dir, "identity")
		defer os.RemoveAll(folder)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, "identity.json")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		var id *identity
		var err error
		fuzzbound.Run(t, len(content), func() {
			if id != nil {
				id.close()
			}
			id, err = openIdentity(folder)
		})
		if err != nil {
			if now, readErr := os.ReadFile(file); readErr != nil || !bytes.Equal(now, content) || !strings.Contains(err.Error(), file) {
				t.Fatalf("%v; the file holds %q, %v", err, now, readErr)
			}
			return
		}
		defer id.close()
		// The file is from another folder, so nothing in it is used again, whoever wrote it.
		one, again, err := id.incarnation(9999, "cluster")
		if err != nil || again {
			t.Fatalf("%x is used again: %t, %v", one, again, err)
		}
		if two, again, err := id.incarnation(9999, "cluster"); err != nil || bootID() != "" && (two != one || !again) {
			t.Fatalf("%x, and then %x: %t, %v", one, two, again, err)
		}
		if other, again, err := id.incarnation(9999, "other"); err != nil || again || other == one {
			t.Fatalf("%x in one cluster, %x in another: %t, %v", one, other, again, err)
		}
	})
}

// FuzzMemory: what is remembered of a topic is refused with the topic's name, or comes back equal from what is written of it.
func FuzzMemory(f *testing.F) {
	f.Add([]byte(`{"version":1,"topic_id":[1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,2],"configs":{"a":null,"b":"1"},"said":{"a":[null,"2"]},"unconfirmed":{"0":{"1":7}},"left_out":{"3":[1,2]},` +
		`"takers":[9],"forced":{"0":{"leader":1,"epoch":2,"end":3}}}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"creator":5}`))
	f.Add([]byte(`{"version":1,"takers":[` + strings.Repeat("1,", 20_000) + `1]}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		var m memory
		var err error
		fuzzbound.Run(t, len(value), func() { m, err = decodeMemory("orders", value) })
		if err != nil {
			if !strings.Contains(err.Error(), "topic orders") {
				t.Fatal(err)
			}
			return
		}
		first, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeMemory("orders", first)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := json.Marshal(back); err != nil || !bytes.Equal(again, first) || back.empty() != m.empty() || back.creating() != m.creating() {
			t.Fatalf("%s became %s, %v", first, again, err)
		}
	})
}
