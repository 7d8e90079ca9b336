package processes_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
)

// bound is the longest that a test waits for any one thing. Nothing here is expected to take that long.
const bound = 60 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
		os.Exit(0)
	}
	// Most of these tests wait for somebody, mostly for a process that stands still: they do it at the same time.
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// place is where the state is: a folder, or a Kafka cluster.
type place struct {
	Dir   string   `json:",omitempty"`
	Seeds []string `json:",omitempty"`
}

func (p place) open(ctx context.Context) (keyedlog.Log, error) {
	if p.Dir != "" {
		return filestore.Open(p.Dir, filestore.Options{})
	}
	return kafkastore.Open(ctx, kafkastore.Config{Seeds: p.Seeds, StatePartitions: 4, ReplicationFactor: 1})
}

// scenariosInKafka is how many scenarios use the shared records in Kafka at once. They share one transactional id, and each writer fences the others: no deployment has dozens of processes that
// use verbs in the same second.
var scenariosInKafka = make(chan struct{}, 4)

// everywhere runs a scenario with the state in a folder and in Kafka. In Kafka all scenarios share the records, so each uses names of its own for mirrors, owners and topics.
func everywhere(t *testing.T, scenario func(t *testing.T, p place)) {
	t.Parallel()
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		scenario(t, place{Dir: filepath.Join(t.TempDir(), "state")})
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		scenariosInKafka <- struct{}{}
		defer func() { <-scenariosInKafka }()
		scenario(t, place{Seeds: kafkatest.Shared(t).Bootstrap()})
	})
}

// look is the parent's own view of the state. It is closed when the test ends.
func look(t *testing.T, p place) keyedlog.Log {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	l, err := p.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// eventually asks until done, with short pauses: another process has no way to call back. It returns how long that took.
func eventually(t *testing.T, what string, done func() (bool, string)) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, now := done()
		if ok {
			return time.Since(began)
		}
		if time.Since(began) > bound {
			t.Fatalf("after %v still not: %s; %s", bound, what, now)
		}
		<-tick.C
	}
}

// print renders for a message.
func print(v any) string { return fmt.Sprintf("%+v", v) }
