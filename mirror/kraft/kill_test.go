package kraft_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// killedVariable makes this binary the process that is killed: the controllers' addresses and its folder.
const killedVariable = "CLUSTERMIRROR_KILLED_CHILD"

func TestMain(m *testing.M) {
	if where := os.Getenv(killedVariable); where != "" {
		if err := killedChild(where); err != nil {
			fmt.Println("child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// killBatch is the batch at an offset: it depends on nothing else, so whoever comes back goes on with the same bytes.
func killBatch(offset int64) []byte {
	n := int(offset%7) + 1
	d := batch.DataSpec{BaseOffset: offset, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, BaseTimestamp: 1_900_000_000_000 + offset}
	for i := range n {
		d.Records = append(d.Records, batch.Record{OffsetDelta: int32(i), Value: bytes.Repeat([]byte{byte('a' + offset%26)}, 50+int(offset%300))})
	}
	return batch.AppendData(nil, d)
}

// killedChild appends to one partition until it is killed, and prints how far it has come.
func killedChild(where string) error {
	parts := strings.Split(where, " ")
	controllers, folder := strings.Split(parts[0], ","), parts[1]
	ctx, stop := context.WithTimeout(context.Background(), 60*time.Second)
	defer stop()
	records, err := filestore.Open(filepath.Join(folder, "records"), filestore.Options{})
	if err != nil {
		return err
	}
	d, err := kraft.Join(ctx, kraft.Config{
		NodeID: nodeID, Controllers: controllers, Listen: "127.0.0.1:0", Folder: filepath.Join(folder, "identity"), Remember: records, SessionTimeout: 3 * time.Second, HeartbeatInterval: 500 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	if _, err := d.CreateTopic(ctx, mirror.TopicSpec{Name: "killed", Partitions: 1}); err != nil && !errors.Is(err, mirror.ErrTopicExists) {
		return err
	}
	l, err := d.OpenLog(ctx, mirror.TopicPartition{Topic: "killed"})
	if err != nil {
		return err
	}
	if owner, _, err := l.Owner(ctx); owner != mirror.OwnerOurs || err != nil {
		return fmt.Errorf("the log is %v: %w", owner, err)
	}
	fmt.Println("end", l.End())
	for ctx.Err() == nil {
		if err := l.Append(ctx, l.LeaderEpoch(), killBatch(l.End())); err != nil {
			return err
		}
		if rand.IntN(4) == 0 {
			if err := l.AwaitReplicated(ctx, l.End()); err != nil {
				return err
			}
			fmt.Println("replicated", l.Replicated())
		}
	}
	return ctx.Err()
}

// TestF81RealKafkaKilled: the mirror process is killed (SIGKILL) again and again while it appends, and comes back within its session or after it. Nothing that was replicated is lost,
// every offset is there once, and the followers' bytes are the same.
func TestF81RealKafkaKilled(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Config: shortSession})
	folder := t.TempDir()
	where := strings.Join(c.ControllerAddresses(), ",") + " " + folder
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	promised, kills := int64(0), 8
	for i := range kills {
		child := exec.Command(os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), killedVariable+"="+where)
		var replicated, started atomic.Int64
		started.Store(-1)
		out := &lines{each: func(line string) {
			if s, ok := strings.CutPrefix(line, "replicated "); ok {
				n, _ := strconv.ParseInt(s, 10, 64)
				replicated.Store(n)
			}
			if s, ok := strings.CutPrefix(line, "end "); ok {
				n, _ := strconv.ParseInt(s, 10, 64)
				started.Store(n)
			}
			if strings.HasPrefix(line, "child: ") {
				t.Errorf("%s", line)
			}
		}}
		child.Stdout, child.Stderr = out, out
		began := time.Now()
		if err := kafkatest.StartProcess(child); err != nil {
			t.Fatal(err)
		}
		want := promised + int64(random.IntN(400)) + 1
		eventually(t, fmt.Sprintf("the child to have replicated %d", want), func() bool { return replicated.Load() >= want || t.Failed() })
		if at := started.Load(); at < promised {
			t.Errorf("it came back at %d, and %d was replicated", at, promised)
		}
		t.Logf("kill %d: began at %d after %s, replicated %d", i, started.Load(), time.Since(began).Round(time.Millisecond), replicated.Load())
		child.Process.Kill()
		child.Wait()
		promised = replicated.Load()
		if i%3 == 2 { // let the session end
			eventually(t, "the partition to have no leader", func() bool { return c.LeaderOf("killed", 0) < 0 })
		}
	}
	j := joinWith(t, c, kraft.Config{
		NodeID: nodeID, Controllers: c.ControllerAddresses(), Listen: "127.0.0.1:0", Folder: filepath.Join(folder, "identity"), SessionTimeout: 3 * time.Second, HeartbeatInterval: 500 * time.Millisecond, Remember: opened(t, filepath.Join(folder, "records")),
	})
	l := j.open("killed", 0)
	if l.End() < promised {
		t.Fatalf("the log ends at %d, and %d was replicated", l.End(), promised)
	}
	await(t, l)
	if err := l.Open(bound(t)); err != nil {
		t.Fatal(err)
	}
	var want []byte
	for at := int64(0); at < l.End(); at += at%7 + 1 {
		want = append(want, killBatch(at)...)
	}
	if got := c.WaitSameSegments("killed", 0, 1, 2, 3); !bytes.Equal(got, want) {
		t.Fatalf("the followers hold %d bytes, %d were appended", len(got), len(want))
	}
	t.Logf("%d kills, %d bytes compared, up to %d", kills, len(want), l.End())
}

func opened(t *testing.T, folder string) keyedlog.Log {
	t.Helper()
	records, err := filestore.Open(folder, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	return records
}

// lines calls each for every line that is written to it.
type lines struct {
	rest []byte
	each func(string)
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		l.each(string(l.rest[:i]))
		l.rest = l.rest[i+1:]
	}
}
