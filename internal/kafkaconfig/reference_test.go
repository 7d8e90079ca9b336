package kafkaconfig

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "s.properties"), "password = p\\u00e4ss\nother=x\n")
	write(t, filepath.Join(dir, "whole"), "line 1\nline 2\n")
	t.Setenv("KAFKACONFIG_A", "from env")
	for value, want := range map[string]string{
		"plain":                   "plain",
		"${env:KAFKACONFIG_A}":    "from env",
		" ${env:KAFKACONFIG_A}\n": "from env",
		"a ${env:KAFKACONFIG_A}, ${env::KAFKACONFIG_A}": "a from env, from env",
		"${file:" + file + ":password}":                 "päss",
		"${directory:" + dir + ":whole}":                "line 1\nline 2",
		"$ {env} ${no reference}":                       "$ {env} ${no reference}",
	} {
		if got, err := resolve("x", value); err != nil || got != want {
			t.Errorf("%q gave %q, %v", value, got, err)
		}
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "large"), strings.Repeat("x", maxFile+1))
	write(t, filepath.Join(dir, "bad"), "a=marker\\uzzzz")
	for value, says := range map[string]string{
		"${env:KAFKACONFIG_NONE}":            "KAFKACONFIG_NONE is not set",
		"${file:" + dir + "/none:a}":         "no such file",
		"${file:" + file + ":none}":          "has no key none",
		"${file:a}":                          "no path",
		"${file:" + dir + "/bad:a}":          "line 1",
		"${directory:" + dir + ":../whole}":  "is not the name of a file",
		"${directory:" + dir + ":}":          "is not the name of a file",
		"${directory:" + dir + ":pipe}":      "not a regular file",
		"${directory:" + dir + ":large}":     "is larger than",
		"marker${marker:x}":                  "none of env, file and directory",
		"${env:KAFKACONFIG_NONE}${marker:x}": "is not set",
	} {
		got, err := resolve("sasl.jaas.config, option password", value)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "sasl.jaas.config, option password: ") || strings.Contains(err.Error(), "marker") {
			t.Errorf("%q gave %q, %v; not %q", value, got, err, says)
		}
	}
}
