package kafkatest

import (
	"errors"
	"strings"
	"testing"
)

func TestDecideWhetherKafkaRuns(t *testing.T) {
	here := func() error { return nil }
	absent := func() error { return errors.New("java is missing") }
	for _, c := range []struct {
		mode    string
		missing func() error
		want    verdict
		says    string
	}{
		{"", here, run, ""},
		{"", absent, skip, "java is missing"},
		{"off", here, skip, "off"},
		{"off", absent, skip, "off"},
		{"required", here, run, ""},
		{"required", absent, fatal, "java is missing"},
		{"yes", here, fatal, "unknown"},
	} {
		got, reason := decide(c.mode, c.missing)
		if got != c.want || !strings.Contains(reason, c.says) || strings.Contains(reason, "\n") {
			t.Errorf("mode %q: verdict %d, reason %q; want %d and %q in one line", c.mode, got, reason, c.want, c.says)
		}
	}
}

func TestLibsRefusesWhatIsNoVersion(t *testing.T) {
	for _, v := range []string{"", "../x", "-x", "4 3"} {
		if dir, err := Libs(v); err == nil {
			t.Errorf("version %q gave %s", v, dir)
		}
	}
}

func TestRewriteMeta(t *testing.T) {
	got := string(rewriteMeta([]byte("#\ncluster.id=abc\ndirectory.id=xyz\nnode.id=1\nversion=1\n"), 7))
	if !strings.Contains(got, "\nnode.id=7\n") || strings.Contains(got, "xyz") || !strings.Contains(got, "cluster.id=abc\n") || !strings.Contains(got, "directory.id=") {
		t.Errorf("got %q", got)
	}
}
