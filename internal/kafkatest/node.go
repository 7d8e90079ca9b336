package kafkatest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// node is one Kafka process and what outlives it: its folder, its ports, its configuration file.
type node struct {
	id     int32
	dir    string // holds server.properties, data, server.log
	ports  ports
	config string // path of the properties file

	mu     sync.Mutex
	cmd    *exec.Cmd
	gone   chan struct{} // closed when cmd has ended
	result error         // of cmd, valid after gone
	paused bool
}

// ports are a node's loopback ports. Advertised is the proxy's port, or Client.
type ports struct {
	Client, Internal, Controller, Admin, Advertised int
	further                                         map[string]int // of Options.Listeners
}

func (n *node) dataDir() string { return n.dir + "/data" }
func (n *node) logFile() string { return n.dir + "/server.log" }

// starter is the one thread that starts processes. Linux sends a child its death signal when the *thread* that started it ends; this one lives as long as the process.
var starter = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// StartProcess starts a command that is killed when this process ends, however it ends. It sets the command's SysProcAttr.
func StartProcess(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error, 1)
	starter() <- func() { result <- cmd.Start() }
	return <-result
}

// start runs the node's process. It does not wait until the node answers.
func (n *node) start(java string, args []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		return fmt.Errorf("kafkatest: broker %d is running already", n.id)
	}
	out, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(java, append(args, "kafka.Kafka", n.config)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, n.dir
	if err := StartProcess(cmd); err != nil {
		return err
	}
	n.cmd, n.gone, n.paused = cmd, make(chan struct{}), false
	go func(gone chan struct{}) {
		err := cmd.Wait()
		n.mu.Lock()
		n.result = err
		n.mu.Unlock()
		close(gone)
	}(n.gone)
	return nil
}

// alive says whether the process runs (a paused one does), and how it ended if not.
func (n *node) alive() (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return false, errors.New("not started")
	}
	select {
	case <-n.gone:
		return false, n.result
	default:
		return true, nil
	}
}

func (n *node) isPaused() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.paused
}

func (n *node) signal(s syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return fmt.Errorf("kafkatest: broker %d is not running", n.id)
	}
	switch s {
	case syscall.SIGSTOP:
		n.paused = true
	case syscall.SIGCONT:
		n.paused = false
	}
	return n.cmd.Process.Signal(s)
}

// awaitStopped waits until the kernel has stopped the process after a SIGSTOP. It does not collect the process's end: that is cmd.Wait's.
func (n *node) awaitStopped() error {
	const byPID, stopped = 1, 2 // P_PID, WSTOPPED of waitid(2)
	n.mu.Lock()
	pid := n.cmd.Process.Pid
	n.mu.Unlock()
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), 0, stopped, 0, 0)
		if errno == 0 {
			return nil
		}
		if errno != syscall.EINTR {
			return errno
		}
	}
}

// end sends s, waits for the end of the process for as long as patience, and then kills it. A process that is gone already is no error.
func (n *node) end(s syscall.Signal, patience time.Duration) error {
	n.mu.Lock()
	cmd, gone, paused := n.cmd, n.gone, n.paused
	n.mu.Unlock()
	if cmd == nil {
		return nil
	}
	var err error
	if cmd.Process.Signal(s) == nil {
		if paused && s != syscall.SIGKILL {
			cmd.Process.Signal(syscall.SIGCONT)
		}
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-gone:
		case <-timer.C:
			err = fmt.Errorf("kafkatest: broker %d did not end within %v of signal %v and was killed", n.id, patience, s)
			cmd.Process.Kill()
		}
	}
	<-gone
	n.mu.Lock()
	n.cmd = nil
	n.mu.Unlock()
	return err
}

// logTail is the end of what the process printed.
func (n *node) logTail(max int) []byte {
	b, err := os.ReadFile(n.logFile())
	if err != nil {
		return []byte(err.Error())
	}
	if len(b) > max {
		b = b[len(b)-max:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return b
}

// portTaken says that the process ended because somebody else took one of its ports between our choice and its bind.
func (n *node) portTaken() bool {
	b := n.logTail(1 << 16)
	return bytes.Contains(b, []byte("Address already in use")) || bytes.Contains(b, []byte("Socket server failed to bind"))
}
