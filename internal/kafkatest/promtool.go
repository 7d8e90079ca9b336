package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Promtool returns the path of Prometheus's promtool, with which rules of alarms are tried: the one on the PATH, or else the one in Debian's package prometheus, of the version that apt offers,
// taken out of the package into the cache folder; nothing is installed. Where neither is to be had it does what Require does without Kafka.
func Promtool(t T) string {
	t.Helper()
	switch verdict, reason := decide(os.Getenv("CLUSTERMIRROR_KAFKA"), func() error { _, err := promtool(); return err }); verdict {
	case fatal:
		t.Fatalf("%s", reason)
	case skip:
		t.Skipf("%s", reason)
	}
	path, err := promtool()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return path
}

var promtool = sync.OnceValues(func() (string, error) {
	if path, err := exec.LookPath("promtool"); err == nil {
		return path, nil
	}
	kept := func() string {
		found, _ := filepath.Glob(filepath.Join(CacheDir(), "promtool-*", "promtool"))
		if len(found) == 0 {
			return ""
		}
		return found[len(found)-1]
	}
	if path := kept(); path != "" {
		return path, nil
	}
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("kafkatest: promtool is missing, and so is %s, which would fetch it: install Prometheus's promtool: %w", tool, err)
		}
	}
	lock, err := lockFile(filepath.Join(CacheDir(), "install.lock"), nil)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if path := kept(); path != "" {
		return path, nil
	}
	tmp, err := os.MkdirTemp(CacheDir(), "fetching-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	deb, err := downloadDeb(ctx, tmp, "prometheus")
	if err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", deb, filepath.Join(tmp, "all")).CombinedOutput(); err != nil {
		return "", fmt.Errorf("kafkatest: taking promtool out of %s: %w\n%s", filepath.Base(deb), err, out)
	}
	version := strings.SplitN(filepath.Base(deb), "_", 3)
	dir := filepath.Join(tmp, "promtool")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(tmp, "all", "usr", "bin", "promtool"), filepath.Join(dir, "promtool")); err != nil {
		return "", err
	}
	to := filepath.Join(CacheDir(), "promtool-"+version[1])
	return filepath.Join(to, "promtool"), os.Rename(dir, to)
})

// downloadDeb fetches a Debian package into dir. A machine that has never asked for lists of packages gets some in dir: the machine itself stays as it is.
func downloadDeb(ctx context.Context, dir, name string) (string, error) {
	run := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "APT::Sandbox::User=root"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kafkatest: apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	err := run("download", name)
	if err != nil {
		lists := []string{"-o", "Dir::State::lists=" + filepath.Join(dir, "lists"), "-o", "Dir::Cache=" + filepath.Join(dir, "cache")}
		if e := os.MkdirAll(filepath.Join(dir, "lists", "partial"), 0o755); e != nil {
			return "", e
		}
		if e := errors.Join(run(append(lists, "update")...), run(append(lists, "download", name)...)); e != nil {
			return "", e
		}
	}
	found, _ := filepath.Glob(filepath.Join(dir, name+"_*_*.deb"))
	if len(found) != 1 {
		return "", fmt.Errorf("kafkatest: apt-get download %s left %d packages", name, len(found))
	}
	return found[0], nil
}
