package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// cpuTime is what this process has used so far, user and system.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// processTime is the CPU time of processes so far, user and system, in ticks of 10 ms (proc(5)).
func processTime(pids ...int) (time.Duration, error) {
	var all time.Duration
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		used, err := parseStat(stat)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		all += used
	}
	return all, nil
}

// parseStat reads utime and stime. The name of the program, in parentheses, may hold anything.
func parseStat(stat []byte) (time.Duration, error) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third one on
	if len(fields) < 13 {
		return 0, fmt.Errorf("%d fields", len(fields))
	}
	var ticks int64
	for _, i := range []int{11, 12} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// processMemory is a line of /proc/PID/status in bytes: VmRSS, what is resident, or VmHWM, the most that ever was. pid is a number or "self".
func processMemory(pid, line string) (int64, error) {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0, err
	}
	return parseStatus(status, line)
}

func parseStatus(status []byte, line string) (int64, error) {
	for l := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(l, ":")
		if fields := strings.Fields(rest); name == line && len(fields) == 2 && fields[1] == "kB" {
			kib, err := strconv.ParseInt(fields[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in kB", line)
}

// brokerPID finds a broker's process: its command line names its folder.
func brokerPID(t *program, c *kafkatest.Cluster, broker int32) int {
	config := filepath.Join(filepath.Dir(c.DataDir(broker)), "server.properties")
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, f := range lines {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte("kafka.Kafka\x00"+config)) {
			n, _ := strconv.Atoi(strings.Split(f, "/")[2])
			return n
		}
	}
	t.Fatalf("no process of broker %d", broker)
	return 0
}

// load is the load average of the last minute.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(b))[0]
}
