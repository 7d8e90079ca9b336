// Command pictures makes the pictures of the status page in docs/pictures, with the Chromium of this machine (Debian: apt-get install chromium). What it shows is no drawing: mirrors between clusters in memory,
// in step, with a source that goes away, and 5,000 partitions, each page as a browser has it.
//
//	go run ./internal/pictures
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statuspage"
)

// most is what one picture may have.
const most = 200 << 10

func main() {
	to := flag.String("to", "docs/pictures", "folder of the pictures")
	browser := flag.String("browser", "", "the browser [chromium, chromium-browser or google-chrome in PATH]")
	bound := flag.Duration("bound", 8*time.Minute, "longest time")
	flag.Parse()
	ctx, stop := context.WithTimeout(context.Background(), *bound)
	defer stop()
	if err := run(ctx, *to, *browser); err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, to, browser string) error {
	if browser == "" {
		for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
			if path, err := exec.LookPath(name); err == nil {
				browser = path
				break
			}
		}
	}
	if browser == "" {
		return errors.New("no Chromium is in PATH: install one (Debian: apt-get install chromium), or name it with -browser")
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	few, err := begin(ctx, 4, 3)
	if err != nil {
		return err
	}
	defer few.end()
	if err := few.live(ctx, 12*time.Second); err != nil {
		return err
	}
	shoot := camera{ctx, browser, to}
	if err := shoot.take(few, "page.png", 1000, 1180); err != nil {
		return err
	}
	few.source.SetUnreachable(true)
	if err := few.live(ctx, 12*time.Second); err != nil {
		return err
	}
	if err := errors.Join(shoot.take(few, "page-source-gone.png", 1000, 1180), shoot.take(few, "page-phone.png", 500, 900, "--blink-settings=preferredColorScheme=0")); err != nil {
		return err
	}

	many, err := begin(ctx, 50, 100)
	if err != nil {
		return err
	}
	defer many.end()
	if _, err := many.source.RecreateTopic("topic-007", 100); err != nil { // they do not go on without a person
		return err
	}
	if err := many.live(ctx, 12*time.Second); err != nil {
		return err
	}
	return shoot.take(many, "page-5000.png", 1000, 1180)
}

// world is a mirror, the page about it, and somebody who writes at its source.
type world struct {
	source  *memlog.Cluster
	mirror  *mirror.Mirror
	topics  []string
	address string
	end     func()
}

func begin(ctx context.Context, topics, partitions int) (w *world, err error) {
	w = &world{source: memlog.New(memlog.Config{ClusterID: "primary"})}
	standby := memlog.New(memlog.Config{ClusterID: "standby"})
	for i := range topics {
		name := fmt.Sprintf("topic-%03d", i)
		w.topics = append(w.topics, name)
		if _, err := w.source.CreateLocalTopic(memlog.LocalTopic{Name: name, Partitions: int32(partitions)}); err != nil {
			return nil, err
		}
	}
	page, err := statuspage.New(statuspage.Config{Title: "node 9999", Interval: 250 * time.Millisecond, Mirrors: func() []statuspage.Subject { return []statuspage.Subject{{Name: "dr", Mirror: w.mirror}} }})
	if err != nil {
		return nil, err
	}
	m, err := mirror.Open(ctx, mirror.Config{Name: "dr", Source: w.source, Destination: standby, Store: standby.StateStore(), Sink: mirror.Discard, RefreshInterval: time.Second, OnEvent: page.Observe})
	if err != nil {
		return nil, err
	}
	w.mirror = m
	if _, err := m.Admin().Start(ctx, w.topics, mirror.StartOptions{}); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if err := m.Await(ctx, func(s mirror.Status) bool {
		r := s.AtRisk()
		return r.Partitions == topics*partitions && r.UnknownAge+r.UnknownOffsets == 0
	}); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	w.address = listener.Addr().String()
	server := &http.Server{Handler: page, ReadHeaderTimeout: 5 * time.Second}
	sampling, stop := context.WithCancel(ctx)
	go page.Run(sampling)
	go func() { _ = server.Serve(listener) }() // it ends with Close
	w.end = func() {
		stop()
		_ = server.Close()
		_ = m.Close()
	}
	return w, nil
}

// live writes for so long, in bursts, so that there is a lag to be seen.
func (w *world) live(ctx context.Context, long time.Duration) error {
	end := time.Now().Add(long)
	for i := 0; time.Now().Before(end); i++ {
		for range 1 + i%17 {
			records := make([]memlog.Record, 50)
			for j := range records {
				records[j].Value = fmt.Appendf(nil, "record %d of burst %d", j, i)
			}
			if _, err := w.source.Produce(ctx, w.topics[i%3], 0, records...); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// camera takes pictures of pages.
type camera struct {
	ctx     context.Context
	browser string
	to      string
}

// take has the browser show the page and keeps what it shows.
func (c camera) take(w *world, name string, width, height int, flags ...string) error {
	profile, err := os.MkdirTemp("", "pictures-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(profile)
	file, err := filepath.Abs(filepath.Join(c.to, name))
	if err != nil {
		return err
	}
	args := append([]string{"--headless=new", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1", "--user-data-dir=" + profile, fmt.Sprintf("--window-size=%d,%d", width, height), "--screenshot=" + file}, flags...)
	if os.Getuid() == 0 {
		args = append(args, "--no-sandbox") // Chromium does not begin as root with one
	}
	began := time.Now()
	if out, err := exec.CommandContext(c.ctx, c.browser, append(args, "http://"+w.address+"/?refresh=off")...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", c.browser, err, out)
	}
	return c.check(file, width, began)
}

// check makes the picture small, and says what it is.
func (c camera) check(file string, width int, began time.Time) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	picture, err := png.Decode(in)
	_ = in.Close() // it was read
	if err != nil {
		return err
	}
	if got := picture.Bounds().Dx(); got != width {
		return fmt.Errorf("%s is %d wide, not %d", file, got, width)
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := errors.Join((&png.Encoder{CompressionLevel: png.BestCompression}).Encode(out, fewColours(picture)), out.Close()); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.Size() > most {
		return fmt.Errorf("%s has %d bytes, which is more than %d", file, info.Size(), most)
	}
	fmt.Printf("%s: %d × %d, %d bytes, in %s\n", filepath.Base(file), picture.Bounds().Dx(), picture.Bounds().Dy(), info.Size(), time.Since(began).Round(time.Millisecond))
	return nil
}
