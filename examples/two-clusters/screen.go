package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// screen shows what is said, and below it a table of how things are: drawn again and again on a terminal, elsewhere as one plain line a second at most.
type screen struct {
	out      io.Writer
	terminal bool // that moves its cursor
	colours  bool
	began    time.Time
	rows     func() []row // of the table
	width    func() int   // of the terminal, 0 if unknown

	mu    sync.Mutex
	drawn int // lines of the table that stand at the end
	last  string
}

// row is one line of the table.
type row struct{ name, text string }

func newScreen(rows func() []row) *screen {
	out := os.Stdout
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return &screen{out: out, terminal: terminal, colours: terminal && os.Getenv("NO_COLOR") == "", began: time.Now(), rows: rows, width: func() int { return widthOf(out) }}
}

// widthOf is how many characters a line of a terminal has.
func widthOf(terminal *os.File) int {
	var size struct{ rows, columns, x, y uint16 }
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, terminal.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size))); errno != 0 {
		return 0
	}
	return int(size.columns)
}

// live shows the table until done is closed.
func (s *screen) live(done <-chan struct{}) {
	every := time.Second
	if s.terminal {
		every = 250 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-done:
			s.mu.Lock()
			s.wipe()
			s.mu.Unlock()
			return
		case <-tick.C:
			s.show()
		}
	}
}

// show draws the table, or prints its line if something in it has changed.
func (s *screen) show() {
	rows := s.rows()
	if len(rows) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := fmt.Sprintf("%5.1fs", time.Since(s.began).Seconds())
	if s.terminal {
		s.wipe()
		room := s.width() - len(at) - 12
		for i, r := range rows {
			if i > 0 {
				at = strings.Repeat(" ", len(at))
			}
			text := []rune(r.text)
			if room > 0 && len(text) > room { // a line that is wrapped would be two to be wiped
				text = append(text[:room-1], '…')
			}
			fmt.Fprintf(s.out, "%s  %s  %s\n", at, s.coloured("1", fmt.Sprintf("%-8s", r.name)), string(text))
		}
		s.drawn = len(rows)
		return
	}
	var parts []string
	for _, r := range rows {
		parts = append(parts, r.name+" "+r.text)
	}
	if line := strings.Join(parts, " | "); line != s.last {
		s.last = line
		fmt.Fprintf(s.out, "%s  %s\n", at, line)
	}
}

// wipe takes the table away.
func (s *screen) wipe() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

// say prints lines that stay.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	fmt.Fprintf(s.out, strings.TrimRight(format, "\n")+"\n", args...)
}

// act prints a heading and why the act is there.
func (s *screen) act(n int, title, why string) {
	s.say("\n%s\n%s\n", s.coloured("1;36", fmt.Sprintf("── %d/%d %s ──", n, acts, title)), why)
}

func (s *screen) coloured(how, text string) string {
	if !s.colours {
		return text
	}
	return "\x1b[" + how + "m" + text + "\x1b[0m"
}
