package nodelife_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// bound is the longest that a test waits for any one thing. Nothing here is expected to take that long.
const bound = 40 * time.Second

func TestMain(m *testing.M) {
	lives.Bound = bound
	code := m.Run()
	lender.End()
	if folder != "" {
		_ = os.RemoveAll(folder)
	}
	os.Exit(code)
}

var lender lives.Keeper

// primary and standby are the clusters that tests share: one broker and three.
func primary(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	return lender.Lend(t, "the primary", kafkatest.Options{Brokers: 1, HeapMB: 384, Config: map[string]string{"log.cleaner.backoff.ms": "100"}})
}

func standby(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	return lender.Lend(t, "the standby", kafkatest.Options{Brokers: 3, HeapMB: 384, Config: map[string]string{"replica.fetch.wait.max.ms": "200"}})
}

var (
	folder string
	built  = sync.OnceValues(func() (string, error) {
		var err error
		if folder, err = os.MkdirTemp("", "nodelife-*"); err != nil {
			return "", err
		}
		path := filepath.Join(folder, "kafka-mirror")
		out, err := exec.Command("go", "build", "-o", path, "github.com/clustermirror/clustermirror/examples/kafka-mirror").CombinedOutput()
		if err != nil {
			os.Stderr.Write(out)
		}
		return path, err
	})
)

// command is the path of kafka-mirror.
func command(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
