package nodelife_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/children"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// process is kafka-mirror run, with its file.
type process struct {
	t      *testing.T
	name   string
	folder string
	http   string
	cmd    *exec.Cmd
	done   chan struct{}
	err    error // of its end
	out    children.Said
}

// free is an address that nobody listens at.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// settings are those of a node of the cluster, with a folder of its own.
func settings(t *testing.T, c *kafkatest.Cluster, folder string, more ...string) (text, http string) {
	http = free(t)
	lines := []string{
		"node.id=9999",
		"bootstrap.servers=" + strings.Join(c.Bootstrap(), ","),
		"controller.quorum.bootstrap.servers=" + strings.Join(c.ControllerAddresses(), ","),
		"listeners=INTERNAL://" + free(t),
		"mirror.node.folder=" + filepath.Join(folder, "identity"),
		"mirror.http.listener=" + http,
		"mirror.state.topic.num.partitions=3",
		"mirror.metadata.refresh.interval.ms=1000",
	}
	return strings.Join(append(lines, more...), "\n") + "\n", http
}

// start starts a node and waits for nothing. When the test ends the process is gone.
func start(t *testing.T, c *kafkatest.Cluster, name string, more ...string) *process {
	t.Helper()
	folder := t.TempDir()
	text, http := settings(t, c, folder, more...)
	if err := os.WriteFile(filepath.Join(folder, "node.properties"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: name, folder: folder, http: http}
	p.start()
	return p
}

// start starts the process, or starts it again with the same file and folder.
func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(command(p.t), "run", "--config", filepath.Join(p.folder, "node.properties"))
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := kafkatest.StartProcess(p.cmd); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan struct{})
	p.done = done
	cmd := p.cmd
	go func() {
		p.err = cmd.Wait()
		close(done)
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-done
		if p.t.Failed() {
			p.t.Logf("node %s printed:\n%s", p.name, p.out.String())
		}
	})
}

// end sends a signal and waits for the process's end. It returns the exit status, −1 for one that was killed.
func (p *process) end(with syscall.Signal) int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(with); err != nil {
		p.t.Fatal(err)
	}
	return p.ended()
}

func (p *process) ended() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(bound):
		p.t.Fatalf("node %s did not end within %s", p.name, bound)
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// get asks the node's HTTP side. status 0: it does not answer.
func (p *process) get(path string) (status int, body string) {
	ctx, stop := context.WithTimeout(p.t.Context(), 5*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.http+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// ready waits until the node leads and follows what it should.
func (p *process) ready() {
	p.t.Helper()
	lives.Eventually(p.t, "node "+p.name+" to be ready", func() (bool, string) {
		select {
		case <-p.done:
			p.t.Fatalf("node %s ended: %v", p.name, p.err)
		default:
		}
		status, body := p.get("/readyz")
		return status == http.StatusOK, fmt.Sprint(status, " ", body)
	})
}

// standsBy waits until the node says that another process has its place.
func (p *process) standsBy() {
	p.t.Helper()
	lives.Eventually(p.t, "node "+p.name+" to stand by", func() (bool, string) {
		status, body := p.get("/readyz")
		return status == http.StatusServiceUnavailable && strings.HasPrefix(body, "standing by"), fmt.Sprint(status, " ", body)
	})
}

// tried runs the command line against the cluster and returns what it printed, and its exit status.
func tried(t *testing.T, c *kafkatest.Cluster, args ...string) (printed string, status int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	out, err := exec.CommandContext(ctx, command(t), append([]string{"--bootstrap-server", strings.Join(c.Bootstrap(), ",")}, args...)...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

// verb is tried, and has to end with an exit status.
func verb(t *testing.T, c *kafkatest.Cluster, want int, args ...string) string {
	t.Helper()
	out, status := tried(t, c, args...)
	if status != want {
		t.Fatalf("kafka-mirror %s: exit status %d, want %d:\n%s", strings.Join(args, " "), status, want, out)
	}
	return out
}

// create makes a mirror of from in to.
func create(t *testing.T, from, to *kafkatest.Cluster, name string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mirror.properties")
	if err := os.WriteFile(file, []byte("bootstrap.servers="+strings.Join(from.Bootstrap(), ",")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	verb(t, to, 0, "--create", "--mirror", name, "--mirror-config", file)
}

// until waits until the description of a mirror has all the words.
func until(t *testing.T, c *kafkatest.Cluster, name string, words ...string) string {
	t.Helper()
	var out string
	lives.Eventually(t, fmt.Sprintf("%q in the description of %s", words, name), func() (bool, string) {
		out, _ = tried(t, c, "--describe", "--mirror", name) // its exit status says how the mirror is
		for _, w := range words {
			if !strings.Contains(out, w) {
				return false, out
			}
		}
		return true, ""
	})
	return out
}

// untilPage waits until a page of the node has the words.
func untilPage(p *process, path, words string) {
	p.t.Helper()
	lives.Eventually(p.t, fmt.Sprintf("%q on %s of node %s", words, path, p.name), func() (bool, string) {
		_, body := p.get(path)
		return strings.Contains(body, words), body
	})
}
