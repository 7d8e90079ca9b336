package fuzzbound

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Fatal is what of a *testing.F is needed to give up.
type Fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Recorded returns the batches that real brokers have answered with, one element for each recorded answer: seeds for a target that takes batches. It looks for the module's testdata above
// the working directory, which is the package's while its tests run.
func Recorded(f Fatal) [][]byte {
	f.Helper()
	root := "."
	for {
		_, err := os.Stat(filepath.Join(root, "go.mod"))
		if err == nil {
			break
		}
		if above, _ := filepath.Abs(root); !errors.Is(err, fs.ErrNotExist) || above == filepath.Dir(above) {
			f.Fatalf("no module above the working directory: %v", err)
		}
		root = filepath.Join(root, "..")
	}
	files, err := filepath.Glob(filepath.Join(root, "testdata", "kafka", "recorded", "*.batches"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no recorded answers: %v", err)
	}
	var all [][]byte
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatalf("%v", err)
		}
		all = append(all, b)
	}
	return all
}
