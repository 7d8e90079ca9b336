package kraft

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestIdentityAfterPowerLoss: a file whose name survived a power loss and whose content did not is none; a file that holds something else is left for a person.
func TestIdentityAfterPowerLoss(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "zeros": "\x00\x00\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, "identity.json"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			id, err := openIdentity(folder)
			if err != nil {
				t.Fatal(err)
			}
			first, again, err := id.incarnation(9999, "cluster")
			if err != nil || again {
				t.Fatalf("a lost identity was found again: %t, %v", again, err)
			}
			id.close()
			if id, err = openIdentity(folder); err != nil {
				t.Fatal(err)
			}
			defer id.close()
			if second, again, err := id.incarnation(9999, "cluster"); err != nil || bootID() != "" && (!again || second != first) {
				t.Errorf("what was saved is not found again: %t, %v", again, err)
			}
			if _, err := os.Stat(id.file() + ".new"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the new file is left behind: %v", err)
			}
		})
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "identity.json"), []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := openIdentity(folder); err == nil {
		id.close()
		t.Error("a newer identity was taken for none")
	}
}
